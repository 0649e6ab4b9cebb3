# expect: recompilation line guilty
# also: slow_steps slow_optimizer slow_start
# held out
"""A warm-up weight that is a Python float, kept on the compiled module: each new value is a new graph."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(128, 32), nn.Linear(32, 128)
        self.stage = "warm0"

    def forward(self, x):  # guilty
        z = torch.relu(self.down(x))
        if self.stage.startswith("warm"):
            z = z * (int(self.stage[4:]) + 1) / 8
        return self.up(z), z


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.encoder = Encoder()
        self.compiled = torch.compile(self.encoder, backend="eager")
        self.optimizer = torch.optim.SGD(self.encoder.parameters(), lr=0.05)

    def step(self, x):
        y, z = self.compiled(x)
        loss = nn.functional.mse_loss(y, x) + 1e-3 * z.abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs=7, steps=60):
        for epoch in range(epochs):
            self.encoder.stage = f"warm{epoch}"
            for _ in range(steps):
                loss = self.step(torch.randn(64, 128))
        return loss.item()


print("loss", Trainer().fit())
