# expect: slowing_steps line guilty
# also: python_overhead
"""A trainer that smooths its loss over all steps so far, each time from the first on."""
import torch
from torch import nn


class Smoothed:
    def __init__(self, decay=0.98):
        self.decay = decay
        self.values = []

    def push(self, value):
        self.values.append(value)
        # fixed: self.values = [(self.values[0] * self.decay + value * (1 - self.decay)) if self.values[1:] else value] * 2
        age = range(len(self.values) - 1, -1, -1)
        weights = [self.decay ** a for a in age]
        return sum(w * v for w, v in zip(weights, self.values)) / sum(weights)


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.smoothed = Smoothed()

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self.smoothed.push(loss.item())  # guilty


def main(steps=5000):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer()
    weights = torch.randn(96, 1) / 10
    smooth = 0.0
    for step in range(steps):
        x = torch.randn(64, 96)
        smooth = trainer.step(x, x @ weights)
        if step % 1000 == 0:
            print(f"step {step} smoothed loss {smooth:.4f}")
    print(f"end smoothed loss {smooth:.4f}")


if __name__ == "__main__":
    main()
