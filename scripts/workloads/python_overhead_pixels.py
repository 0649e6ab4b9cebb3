# expect: python_overhead line guilty
# also: host_sync_in_step
"""U-Net-ish segmentation of synthetic shapes with a running IoU per class."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N_CLASSES = 4


def draw(n, size, seed=0):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size]
    imgs = rng.normal(0, 0.3, (n, 1, size, size)).astype(np.float32)
    masks = np.zeros((n, size, size), np.int64)
    for i in range(n):
        for c in range(1, N_CLASSES):
            cy, cx, r = rng.uniform(8, size - 8), rng.uniform(8, size - 8), rng.uniform(3, 8)
            if c == 1:
                inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            elif c == 2:
                inside = (abs(yy - cy) < r) & (abs(xx - cx) < r)
            else:
                inside = abs(yy - cy) + abs(xx - cx) < r
            masks[i][inside] = c
            imgs[i, 0][inside] += 0.7 * c
    return TensorDataset(torch.from_numpy(imgs), torch.from_numpy(masks))


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.d1, self.d2, self.mid = conv(1, ch), conv(ch, ch * 2), conv(ch * 2, ch * 2)
        self.u1, self.u2 = conv(ch * 4, ch), conv(ch * 2, ch)
        self.head = nn.Conv2d(ch, N_CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = F.interpolate(self.mid(F.max_pool2d(b, 2)), scale_factor=2)
        u = F.interpolate(self.u1(torch.cat([m, b], 1)), scale_factor=2)
        return self.head(self.u2(torch.cat([u, a], 1)))


def confusion_matrix(pred, target, n):
    cm = torch.zeros(n, n)
    for p, t in zip(pred.reshape(-1), target.reshape(-1)):  # guilty
        cm[t.item(), p.item()] += 1  # guilty
    return cm


def iou(cm):
    inter = cm.diag()
    return inter / (cm.sum(0) + cm.sum(1) - inter).clamp(min=1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--size", type=int, default=48)
    p.add_argument("--bs", type=int, default=16)
    p.add_argument("--lr", type=float, default=3e-3)
    args = p.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(draw(640, args.size), batch_size=args.bs, shuffle=True)
    model = UNet()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    weight = torch.tensor([0.3, 1.0, 1.0, 1.0])
    for epoch in range(args.epochs):
        cm, seen, total = torch.zeros(N_CLASSES, N_CLASSES), 0, 0.0
        for img, mask in loader:
            out = model(img)
            loss = F.cross_entropy(out, mask, weight=weight)
            opt.zero_grad()
            loss.backward()
            opt.step()
            # every fourth pixel in both directions is plenty for the training IoU
            pred, ref = out.detach().argmax(1)[:, ::4, ::4], mask[:, ::4, ::4]
            cm += confusion_matrix(pred, ref, N_CLASSES)  # guilty
            # fixed: cm += torch.bincount((ref * N_CLASSES + pred).flatten(), minlength=N_CLASSES ** 2).view(N_CLASSES, N_CLASSES)
            total += loss.item() * len(img)
            seen += len(img)
        scores = " ".join(f"{v:.3f}" for v in iou(cm))
        print(f"epoch {epoch} loss {total / seen:.4f} iou {scores}")


if __name__ == "__main__":
    main()
