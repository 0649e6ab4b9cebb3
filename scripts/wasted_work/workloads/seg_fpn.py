# expect: linear_on_repeated_rows line guilty
# options: --inspect
"""Semantic segmentation of overlapping discs with a small encoder / FPN decoder."""
import argparse

import torch
from torch import nn
import torch.nn.functional as F


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin, cout, stride=1):
        super().__init__(
            nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class Encoder(nn.Module):
    def __init__(self, widths=(24, 32, 48)):
        super().__init__()
        self.stem = ConvBNReLU(3, widths[0], 2)
        self.stage2 = ConvBNReLU(widths[0], widths[1], 2)
        self.stage3 = ConvBNReLU(widths[1], widths[2], 2)

    def forward(self, x):
        c1 = self.stem(x)
        c2 = self.stage2(c1)
        c3 = self.stage3(c2)
        return c2, c3


class FPNHead(nn.Module):
    def __init__(self, c2, c3, width, n_classes):
        super().__init__()
        self.lat2 = nn.Conv2d(c2, width, 1)
        self.lat3 = nn.Conv2d(c3, width, 1)
        self.smooth = ConvBNReLU(width, width)
        self.classifier = nn.Conv2d(width, n_classes, 1)

    def forward(self, feats, out_size):
        f2, f3 = feats
        top = F.interpolate(self.lat3(f3), size=f2.shape[-2:], mode="nearest")
        x = self.smooth(self.lat2(f2) + top)
        x = F.interpolate(x, size=out_size, mode="bilinear", align_corners=False)  # guilty
        # fixed: x = self.classifier(x)
        return self.classifier(x)  # guilty
        # fixed: return F.interpolate(x, size=out_size, mode="bilinear", align_corners=False)


class SegModel(nn.Module):
    def __init__(self, n_classes, width=20):
        super().__init__()
        self.encoder = Encoder()
        self.head = FPNHead(32, 48, width, n_classes)

    def forward(self, x):
        return self.head(self.encoder(x), x.shape[-2:])


def make_scene(n, size, n_classes, n_disc=5):
    ax = torch.arange(size).float()
    mask = torch.zeros(n, size, size, dtype=torch.long)
    img = torch.rand(n, 3, size, size) * 0.3
    for _ in range(n_disc):
        cx, cy = torch.rand(2, n, 1, 1) * size
        r = torch.rand(n, 1, 1) * size * 0.15 + 4
        cls = torch.randint(1, n_classes, (n, 1, 1))
        inside = (ax[None, None] - cx) ** 2 + (ax[None, :, None] - cy) ** 2 < r**2
        mask = torch.where(inside, cls, mask)
    palette = torch.rand(n_classes, 3)
    img = img + palette[mask].permute(0, 3, 1, 2)
    return img, mask


def mean_dice(logits, mask, n_classes):
    pred = logits.argmax(1)
    scores = []
    for c in range(1, n_classes):
        p, t = pred == c, mask == c
        scores.append(2 * (p & t).sum() / (p.sum() + t.sum()).clamp(min=1))
    return torch.stack(scores).mean()


def main():
    ap = argparse.ArgumentParser("seg")
    ap.add_argument("--size", type=int, default=64)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--classes", type=int, default=4)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--lr", type=float, default=3e-3)
    args = ap.parse_args()
    torch.manual_seed(42)
    images, masks = make_scene(96, args.size, args.classes)
    model = SegModel(args.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        idx = torch.randint(len(images), (args.batch_size,))
        logits = model(images[idx])
        loss = F.cross_entropy(logits, masks[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            dice = mean_dice(logits, masks[idx], args.classes)
            print(f"step {step} loss {loss.item():.4f} dice {dice.item():.3f}")


if __name__ == "__main__":
    main()
