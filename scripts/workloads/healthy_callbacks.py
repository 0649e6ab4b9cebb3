# expect: healthy
# held out
"""Residual CNN on digits with a small trainer class, callbacks and a background loader."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, Subset


class Digits(Dataset):
    def __init__(self, augment):
        d = load_digits()
        x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
        self.x = F.interpolate(x, scale_factor=2)
        self.y = torch.tensor(d.target)
        self.augment = augment

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.augment:
            x = torch.roll(x, tuple(torch.randint(-1, 2, (2,)).tolist()), (1, 2))
        return x, self.y[i]


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(ch, ch, 3, padding=1), nn.Conv2d(ch, ch, 3, padding=1)
        self.b1, self.b2 = nn.BatchNorm2d(ch), nn.BatchNorm2d(ch)

    def forward(self, x):
        return F.relu(x + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))


class Callback:
    def on_step(self, trainer): ...
    def on_epoch(self, trainer): ...


class Progress(Callback):
    def __init__(self):
        self.avg = None

    def on_step(self, trainer):
        value = trainer.loss.item()
        self.avg = value if self.avg is None else 0.95 * self.avg + 0.05 * value

    def on_epoch(self, trainer):
        print(f"epoch {trainer.epoch} loss {self.avg:.4f} val {trainer.val_acc:.3f}")


class KeepBest(Callback):
    def __init__(self, path):
        self.path, self.best = path, 0.0

    def on_epoch(self, trainer):
        if trainer.val_acc > self.best:
            self.best = trainer.val_acc
            torch.save(trainer.model.state_dict(), self.path)


class Trainer:
    def __init__(self, model, callbacks, epochs=10):
        self.model, self.callbacks, self.epochs = model, callbacks, epochs
        self.opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs)

    def fit(self, train, val):
        for self.epoch in range(self.epochs):
            self.model.train()
            for x, y in train:
                self.loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                self.loss.backward()
                self.opt.step()
                for c in self.callbacks:
                    c.on_step(self)
            self.sched.step()
            self.val_acc = self.evaluate(val)
            for c in self.callbacks:
                c.on_epoch(self)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        return sum((self.model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(0)
    train = DataLoader(Subset(Digits(True), range(1600)), 32, shuffle=True, num_workers=1,
                       persistent_workers=True, prefetch_factor=4)
    val = DataLoader(Subset(Digits(False), range(1600, 1797)), 197)
    net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), ResBlock(24), nn.MaxPool2d(2), ResBlock(24),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    best = os.path.join(tempfile.mkdtemp(prefix="digits_"), "best.pt")
    Trainer(net, [Progress(), KeepBest(best)]).fit(train, val)
