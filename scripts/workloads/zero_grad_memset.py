# expect: zero_grad_memset line guilty
# also: slow_optimizer
"""Gradient clearing as it was before PyTorch 2.0, on a model whose large tables get few gradients."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Linear(256, 512) for _ in range(64))
        self.head = nn.Linear(512, 4)

    def forward(self, x, which):
        return self.head(torch.relu(self.tables[which](x)))


def train(steps=600):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05)
    x, y = torch.randn(1024, 256), torch.randint(0, 4, (1024,))
    for step in range(steps):
        rows = torch.arange(step * 16, step * 16 + 16) % len(x)
        model.zero_grad(set_to_none=False)  # guilty
        loss = nn.functional.cross_entropy(model(x[rows], step % 64), y[rows])
        loss.backward()
        optimizer.step()
    return loss.item()


print("loss", train())
