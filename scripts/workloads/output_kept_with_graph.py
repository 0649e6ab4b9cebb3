# expect: host_memory_growth line guilty
# also: python_overhead slow_steps
# held out
"""A trainer class that keeps the regulariser of each step for a plot at the end, and with it the whole step's graph."""
import torch
from torch import nn


class Penalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(96, 768), nn.Tanh(), nn.Linear(768, 768), nn.Tanh())
        self.decode = nn.Linear(768, 96)

    def forward(self, x):
        code = self.encode(x)
        return self.decode(code), code


class Trainer:
    def __init__(self):
        torch.manual_seed(1)
        self.model = Penalised()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.codes = []

    def step(self, x):
        output, code = self.model(x)  # guilty
        loss = (output - x).square().mean() + 1e-3 * code.abs().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # guilty
        self.optimizer.step()
        self.codes.append(code)  # guilty
        return loss.item()

    def fit(self, steps):
        for number in range(steps):
            last = self.step(torch.randn(128, 96))
            if number % 100 == 0:
                print(number, last)


if __name__ == "__main__":
    trainer = Trainer()
    trainer.fit(700)
    print("codes", len(trainer.codes), float(trainer.codes[-1].detach().mean()))
