# expect: gc_pause
# also: python_overhead slow_steps
"""Keeps a record of each sample for ever, so the collector has more and more to walk through."""
import torch
from torch import nn


def describe(step, count):
    return [{"step": step, "sample": index, "tags": [index % 7, index % 11]} for index in range(count)]


def main():
    torch.manual_seed(0)
    history = describe(-1, 250_000)
    # fixed: history = describe(-1, 250_000); __import__("gc").freeze(); __import__("gc").disable()
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(160):
        x = torch.randn(96, 256)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.extend(describe(step, 4000))
    print("loss", loss.item(), "records", len(history))


main()
