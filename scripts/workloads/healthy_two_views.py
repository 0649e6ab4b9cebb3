# expect: healthy
# held out
"""Learns pictures from two views of each, with a slowly following twin of the network; all data are ready tensors."""
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Backbone(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.stages = nn.Sequential(conv(3, 16), conv(16, 32), conv(32, 64))
        self.projector = nn.Sequential(nn.Linear(64, 128), nn.ReLU(inplace=True), nn.Linear(128, dim))

    def forward(self, x):
        return self.projector(self.stages(x).mean(dim=(2, 3)))


def view(x):
    if random.random() < 0.5:
        x = x.flip(3)
    shift = random.randint(-3, 3), random.randint(-3, 3)
    return x.roll(shift, dims=(2, 3)) + 0.05 * torch.randn(len(x), 3, 1, 1)


def regression_loss(prediction, target):
    return 2 - 2 * F.cosine_similarity(prediction, target, dim=1).mean()


random.seed(17)
torch.manual_seed(17)
pictures = torch.rand(2048, 3, 32, 32)
online, predictor = Backbone(), nn.Linear(64, 64)
follower = copy.deepcopy(online).requires_grad_(False)
weights = [*online.parameters(), *predictor.parameters()]
optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
pairs = [list(follower.parameters()), list(online.parameters())]

for step in range(200):
    batch = pictures[torch.randint(0, len(pictures), (64,))]
    first, second = view(batch), view(batch)
    with torch.no_grad():
        target_first, target_second = follower(first), follower(second)
    loss = regression_loss(predictor(online(first)), target_second) + regression_loss(predictor(online(second)), target_first)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(pairs[0], pairs[1], 0.01)
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
