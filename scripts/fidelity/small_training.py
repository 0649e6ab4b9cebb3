"""A small training script for old and new versions of Python and PyTorch, without any reference to perfwrap.

python small_training.py [BACKEND]     with torch.compile and that backend
"""

import random
import sys
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    """Random samples, from torch's and from Python's generator."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.randn(16) + random.random(), index % 4


def main():
    """Train for three epochs, and save a checkpoint after each."""
    torch.manual_seed(3)
    random.seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 4))
    run = torch.compile(model, backend=sys.argv[1]) if len(sys.argv) > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(Noise(), batch_size=8, shuffle=True, num_workers=2, generator=generator)
    for epoch in range(3):
        total = 0.0
        for inputs, targets in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(run(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        scheduler.step()
        print("epoch", epoch, "loss", total, "rate", scheduler.get_last_lr())
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
            "checkpoint{}.pt".format(epoch),  # noqa: UP032
        )
    warnings.warn("the last of it", stacklevel=1)
    print(
        "gradient" if model[0].weight.grad is not None else "no gradient",
        torch.rand(1).item(),
        random.random(),
    )


if __name__ == "__main__":
    main()
