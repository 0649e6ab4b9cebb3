# expect: healthy
# held out
# options: --inspect
"""BYOL on 1-D signals: online network, EMA target under no_grad, two random views per step."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_encoder(dim):
    return nn.Sequential(
        nn.Conv1d(2, 24, 7, 2, 3, bias=False), nn.BatchNorm1d(24), nn.ReLU(inplace=True),
        nn.Conv1d(24, 48, 5, 2, 2, bias=False), nn.BatchNorm1d(48), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, dim),
    )


def head(cin, hidden, cout):
    return nn.Sequential(nn.Linear(cin, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, cout))


class BYOL(nn.Module):
    def __init__(self, dim=64, momentum=0.99):
        super().__init__()
        self.online = nn.Sequential(conv_encoder(dim), head(dim, 128, 64))
        self.predictor = head(64, 128, 64)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def update_target(self):
        online, target = list(self.online.parameters()), list(self.target.parameters())
        torch._foreach_lerp_(target, online, 1 - self.momentum)

    def forward(self, v1, v2):
        p1, p2 = self.predictor(self.online(v1)), self.predictor(self.online(v2))
        with torch.no_grad():
            t1, t2 = self.target(v1), self.target(v2)
        loss = 4 - 2 * (F.cosine_similarity(p1, t2) + F.cosine_similarity(p2, t1))
        return loss.mean()


def augment(x):
    n, c, length = x.shape
    gain = 1 + 0.3 * torch.randn(n, c, 1)
    start = torch.randint(length, (n, 1))
    keep = ((torch.arange(length) - start) % length) > length // 6
    shift = torch.randint(-8, 9, ()).item()
    return torch.roll(x, shift, -1) * gain * keep[:, None] + 0.05 * torch.randn_like(x)


def make_signals(n, length):
    t = torch.linspace(0, 1, length)
    f = torch.rand(n, 2, 1) * 20 + 2
    phase = torch.rand(n, 2, 1) * 6.2832
    return torch.sin(6.2832 * f * t + phase) * torch.exp(-2 * torch.rand(n, 1, 1) * t)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=1024)
    ap.add_argument("--length", type=int, default=128)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(7)
    signals = make_signals(args.n, args.length)
    model = BYOL()
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=args.lr, weight_decay=1e-4)
    for step in range(1, args.steps + 1):
        x = signals[torch.randint(args.n, (args.batch,))]
        loss = model(augment(x), augment(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.update_target()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
