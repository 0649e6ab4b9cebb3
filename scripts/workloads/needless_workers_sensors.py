# expect: needless_workers line guilty
# also: thread_oversubscription
# twin: healthy
"""Near-online regression of a pump's bearing temperature: very small batches, many updates."""
import argparse
import collections

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SensorWindows(Dataset):
    def __init__(self, length=1500, channels=6, window=16):
        g = torch.Generator().manual_seed(11)
        noise = torch.randn(length + window, channels, generator=g)
        self.series = torch.cumsum(noise * 0.05, 0) + noise * 0.1
        self.target = self.series.mean(1)
        self.window = window

    def __len__(self):
        return len(self.series) - self.window

    def __getitem__(self, i):
        return self.series[i:i + self.window], self.target[i + self.window]


class Regressor(nn.Module):
    def __init__(self, channels=6, window=16, width=64):
        super().__init__()
        self.mix = nn.Sequential(nn.Conv1d(channels, width, 3, padding=1), nn.GELU(),
                                 nn.Conv1d(width, width, 3, padding=1), nn.GELU())
        self.out = nn.Linear(width * window, 1)

    def forward(self, x):
        return self.out(self.mix(x.transpose(1, 2)).flatten(1)).squeeze(1)


def get_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--num-workers", type=int, default=8)
    # fixed: parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = get_args()
    torch.manual_seed(0)
    dataset = SensorWindows()
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers,  # guilty
                        persistent_workers=args.num_workers > 0, drop_last=True)
    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4, fused=True)
    recent = collections.deque(maxlen=200)
    for epoch in range(args.epochs):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent.append(loss.item())
            if i % 250 == 0:
                print(f"epoch {epoch} {i}/{len(loader)} mse {sum(recent) / len(recent):.4f}")
    print("done", sum(recent) / len(recent))


if __name__ == "__main__":
    main()
