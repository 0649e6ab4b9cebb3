# expect: frozen_part_with_gradients line guilty
# options: --inspect
# also: unused_gradients unused_work
"""Leaf diseases: a new head on a pretrained backbone; only the head is given to the optimizer."""
import collections
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

DISEASES = 7


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.GroupNorm(8, outputs)
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


class Backbone(nn.Sequential):
    def __init__(self):
        super().__init__(collections.OrderedDict(
            stem=nn.Conv2d(3, 16, 5, 2, 2), stage1=Residual(16, 16, 1), stage2=Residual(16, 32, 2), stage3=Residual(32, 64, 2)
        ))


class Head(nn.Module):
    """Attention over the places of the feature map."""

    def __init__(self, width):
        super().__init__()
        self.attention, self.value = nn.Linear(width, 4), nn.Linear(width, width)
        self.out = nn.Linear(4 * width, DISEASES)

    def forward(self, features):
        places = features.flatten(2).transpose(1, 2)
        weights = self.attention(places).softmax(1)
        pooled = torch.einsum("bpk,bpd->bkd", weights, self.value(places))
        return self.out(pooled.flatten(1))


class LeafNet(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.backbone = Backbone()
        self.backbone.load_state_dict(torch.load(weights))
        self.head = Head(64)

    def forward(self, pictures):
        features = self.backbone(pictures)  # guilty
        # fixed: with torch.no_grad(): features = self.backbone(pictures)
        return self.head(features)


def leaves(count, generator):
    kinds = torch.randint(DISEASES, (count,), generator=generator)
    spots = F.interpolate(torch.randn(DISEASES, 3, 12, 12, generator=generator), size=48, mode="bilinear")
    return spots[kinds] + torch.randn(count, 3, 48, 48, generator=generator), kinds


def main():
    torch.manual_seed(70)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "backbone.pt")
        torch.save(Backbone().state_dict(), path)
        net = LeafNet(path)
    optimizer = torch.optim.Adam(net.head.parameters(), lr=3e-3)
    pictures, kinds = leaves(400, torch.Generator().manual_seed(71))
    for step in range(90):
        rows = torch.randint(400, (8,))
        batch = pictures[rows].roll(int(torch.randint(-4, 5, ())), 3)
        loss = F.cross_entropy(net(batch), kinds[rows])
        optimizer.zero_grad()
        loss.backward()  # guilty
        optimizer.step()
        if step % 10 == 0:
            print(step, f"{loss.item():.5f}")


if __name__ == "__main__":
    main()
