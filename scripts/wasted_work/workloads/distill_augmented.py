# expect: healthy
# held out
# options: --inspect
"""Knowledge distillation: frozen teacher under no_grad on freshly augmented images, small student."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_net(widths, n_classes):
    layers, cin = [], 3
    for w in widths:
        layers += [nn.Conv2d(cin, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True)]
        cin = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, n_classes))


def kd_loss(student, teacher, labels, T, alpha):
    soft = F.kl_div(F.log_softmax(student / T, 1), F.log_softmax(teacher / T, 1), reduction="batchmean", log_target=True)
    return alpha * T * T * soft + (1 - alpha) * F.cross_entropy(student, labels)


def random_crop_flip(x, pad=3):
    n, _, h, w = x.shape
    x = F.pad(x, (pad, pad, pad, pad), mode="reflect")
    dy, dx = torch.randint(2 * pad + 1, (2, n, 1))
    cols = dx + torch.arange(w)
    flip = torch.rand(n, 1) < 0.5
    cols = torch.where(flip, cols.flip(1), cols)
    rows = dy + torch.arange(h)
    return x[torch.arange(n)[:, None, None], :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def textures(n, n_classes, size):
    y = torch.randint(n_classes, (n,))
    ax = torch.arange(size).float()
    freq = 0.2 + 0.25 * y.float()[:, None, None]
    pat = torch.sin(freq * ax[None, :, None]) * torch.cos(freq * ax[None, None, :])
    return pat[:, None] + 0.7 * torch.randn(n, 3, size, size), y


def train(model, images, labels, args, teacher=None, steps=100, tag="student"):
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    model.train()
    correct = torch.zeros((), dtype=torch.long)
    for step in range(1, steps + 1):
        idx = torch.randint(len(images), (args.batch,))
        x, y = random_crop_flip(images[idx]), labels[idx]
        with torch.no_grad():
            guide = teacher(x)
        logits = model(x)
        loss = kd_loss(logits, guide, y, args.temperature, args.alpha)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (logits.detach().argmax(1) == y).sum()
        if step % 20 == 0:
            print(f"{tag} step {step} loss {loss.item():.4f} acc {correct.item() / (20 * args.batch):.3f}")
            correct.zero_()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--classes", type=int, default=6)
    ap.add_argument("--size", type=int, default=32)
    ap.add_argument("--batch", type=int, default=40)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--temperature", type=float, default=3.0)
    ap.add_argument("--alpha", type=float, default=0.7)
    ap.add_argument("--lr", type=float, default=0.03)
    args = ap.parse_args()
    torch.manual_seed(0)
    images, labels = textures(512, args.classes, args.size)
    teacher = make_net((24, 48, 64), args.classes).eval().requires_grad_(False)
    student = make_net((16, 24, 32), args.classes)
    train(student, images, labels, args, teacher, args.steps)


if __name__ == "__main__":
    main()
