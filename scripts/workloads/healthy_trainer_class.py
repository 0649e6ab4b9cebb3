# expect: healthy
# held out
"""A trainer class with a worker that stays, accumulation, clipping, a scheduler and a log line now and then."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    batch_size: int = 64
    epochs: int = 2
    accumulate: int = 2
    clip: float = 1.0
    lr: float = 1e-3
    log_every: int = 50


class Spectra(Dataset):
    def __init__(self, size, seed):
        rng = np.random.default_rng(seed)
        self.values = rng.standard_normal((size, 512), dtype=np.float32)
        self.labels = rng.integers(0, 12, size)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return torch.from_numpy(self.values[index]), int(self.labels[index])


class Trainer:
    def __init__(self, model, data, config):
        self.model, self.config = model, config
        self.loader = DataLoader(data, config.batch_size, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
        updates = config.epochs * len(self.loader) // config.accumulate
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 3 * config.lr, total_steps=updates)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def update(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)

    def fit(self):
        seen = 0
        for epoch in range(self.config.epochs):
            for values, labels in self.loader:
                loss = self.criterion(self.model(values), labels) / self.config.accumulate
                loss.backward()
                seen += 1
                if seen % self.config.accumulate == 0:
                    self.update()
                if seen % self.config.log_every == 0:
                    print(f"epoch {epoch} batch {seen} loss {loss.item() * self.config.accumulate:.4f}")


if __name__ == "__main__":
    torch.manual_seed(4)
    network = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 12))
    Trainer(network, Spectra(64 * 125, seed=9), Config()).fit()
