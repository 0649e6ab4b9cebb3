# expect: healthy
# options: --inspect
"""Classify textures; an exponential average of the weights is kept and judged at the end of each epoch."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

KINDS = 8


def textures(count, generator):
    kinds = torch.randint(KINDS, (count,), generator=generator)
    axis = torch.linspace(0, 6.28, 32)
    angle = kinds * 3.14 / KINDS
    wave = angle.cos()[:, None, None] * axis[None, :, None] + angle.sin()[:, None, None] * axis[None, None, :]
    phase = 6.28 * torch.rand(count, 1, 1, generator=generator)
    return (torch.sin(4 * wave + phase) + torch.randn(count, 32, 32, generator=generator))[:, None], kinds


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2, stride=2), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(192, KINDS)
    )


@torch.no_grad()
def judge(model, pictures, kinds):
    model.eval()
    right = sum((model(p).argmax(1) == k).sum() for p, k in zip(pictures.split(64), kinds.split(64)))
    return right.item() / len(kinds)


def main():
    torch.manual_seed(8)
    generator = torch.Generator().manual_seed(80)
    pictures, kinds = textures(800, generator)
    unseen = textures(128, generator)
    model = build()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.97))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(4):
        model.train()
        for rows in torch.randperm(800).split(32):
            noisy = pictures[rows] + 0.1 * torch.randn(len(rows), 1, 32, 32)
            loss = F.cross_entropy(model(noisy), kinds[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
        print(f"epoch {epoch} loss {loss.item():.4f} average of weights right {judge(average, *unseen):.3f}")


if __name__ == "__main__":
    main()
