# expect: repeated_work line guilty
# options: --inspect
"""Forecast the load of households with a causal convolution network; the error in kilowatts is logged beside the loss."""
import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn


@dataclass
class Config:
    history: int = 96
    horizon: int = 12
    width: int = 32
    levels: int = 4
    batch: int = 32
    epochs: int = 6
    learning_rate: float = 2e-3


@dataclass
class Average:
    total: float = 0.0
    count: int = 0
    history: list = field(default_factory=list)

    def add(self, value, weight=1):
        self.total += float(value) * weight
        self.count += weight

    def close(self):
        self.history.append(self.total / max(self.count, 1))
        self.total, self.count = 0.0, 0
        return self.history[-1]


def households(count, length, generator):
    hours = torch.arange(length) / 4.0
    level = 0.5 + torch.rand(count, 1, generator=generator)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    load = level * (1 + 0.6 * torch.sin(2 * math.pi * hours / 24 + phase) + 0.3 * torch.sin(2 * math.pi * hours / 6 + 2 * phase))
    return load + 0.1 * torch.randn(count, length, generator=generator)


class Level(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(torch.relu(self.conv(self.pad(x))))


class Forecaster(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inlet = nn.Conv1d(1, config.width, 1)
        self.levels = nn.Sequential(*(Level(config.width, 2**i) for i in range(config.levels)))
        self.outlet = nn.Linear(config.width, config.horizon)

    def forward(self, x):
        return self.outlet(self.levels(self.inlet(x[:, None]))[:, :, -24:].mean(2))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = Forecaster(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.learning_rate)
        self.criterion = nn.SmoothL1Loss()
        self.loss, self.error = Average(), Average()

    def compute_loss(self, past, future, scale):
        return self.criterion(self.model(past / scale), future / scale)  # guilty
        # fixed: self.guess = self.model(past / scale); return self.criterion(self.guess, future / scale)

    @torch.no_grad()
    def kilowatts(self, past, future, scale):
        forecast = self.model(past / scale) * scale  # guilty
        # fixed: forecast = self.guess.detach() * scale
        return (forecast - future).abs().mean()

    def step(self, past, future):
        scale = past.abs().mean(1, keepdim=True)
        loss = self.compute_loss(past, future, scale)
        self.error.add(self.kilowatts(past, future, scale), len(past))  # guilty
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loss.add(loss.item(), len(past))

    def fit(self, windows):
        size = self.config.history
        for epoch in range(self.config.epochs):
            for rows in torch.randperm(len(windows)).split(self.config.batch):
                self.step(windows[rows, :size], windows[rows, size:])
            print(f"epoch {epoch} loss {self.loss.close():.6f} error {self.error.close():.5f} kW")


def main():
    torch.manual_seed(2024)
    config = Config()
    load = households(24, 96 * 8, torch.Generator().manual_seed(3))
    windows = load.unfold(1, config.history + config.horizon, 30).flatten(0, 1)
    Trainer(config).fit(windows[:512])


if __name__ == "__main__":
    main()
