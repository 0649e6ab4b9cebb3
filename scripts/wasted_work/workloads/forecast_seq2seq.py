# expect: healthy
# held out
# options: --inspect
"""Encoder/decoder forecasting; the decoder is a GRU-cell loop that feeds back its own prediction."""
import argparse

import torch
from torch import nn
import torch.nn.functional as F


class Forecaster(nn.Module):
    def __init__(self, channels, hidden, horizon):
        super().__init__()
        self.encoder = nn.GRU(channels, hidden, batch_first=True)
        self.cell = nn.GRUCell(channels, hidden)
        self.readout = nn.Linear(hidden, channels)
        self.horizon = horizon

    def forward(self, history, future=None, teacher_prob=0.0):
        _, h = self.encoder(history)
        h = h[0]
        last = history[:, -1]
        preds = []
        for t in range(self.horizon):
            h = self.cell(last, h)
            step = last + self.readout(h)
            preds.append(step)
            if future is not None and t + 1 < self.horizon and torch.rand(()).item() < teacher_prob:
                last = future[:, t]
            else:
                last = step
        return torch.stack(preds, 1)


class WindowSampler:
    def __init__(self, series, past, horizon):
        self.windows = series.unfold(0, past + horizon, 1).transpose(1, 2)
        self.past = past

    def draw(self, n):
        w = self.windows[torch.randint(len(self.windows), (n,))]
        return w[:, : self.past], w[:, self.past :]


def synth_series(n, channels):
    t = torch.arange(n).float()[:, None]
    period = torch.randint(10, 50, (1, channels)).float()
    x = torch.sin(6.2832 * t / period) + 0.4 * torch.sin(6.2832 * t / 7) + 0.1 * torch.randn(n, channels)
    return (x - x.mean(0)) / x.std(0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--past", type=int, default=36)
    ap.add_argument("--horizon", type=int, default=12)
    ap.add_argument("--channels", type=int, default=6)
    ap.add_argument("--hidden", type=int, default=48)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--iters", type=int, default=100)
    ap.add_argument("--lr", type=float, default=3e-3)
    args = ap.parse_args()
    torch.manual_seed(2)
    sampler = WindowSampler(synth_series(2000, args.channels), args.past, args.horizon)
    model = Forecaster(args.channels, args.hidden, args.horizon)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    mae_sum = torch.zeros(())
    for it in range(1, args.iters + 1):
        past, future = sampler.draw(args.batch)
        teacher = max(0.0, 1.0 - it / (0.7 * args.iters))
        pred = model(past, future, teacher)
        loss = F.smooth_l1_loss(pred, future)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        mae_sum += (pred.detach() - future).abs().mean()
        if it % 20 == 0:
            print(f"iter {it} loss {loss.item():.4f} mae {mae_sum.item() / 20:.4f}")
            mae_sum.zero_()


if __name__ == "__main__":
    main()
