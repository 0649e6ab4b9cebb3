# expect: healthy
# options: --inspect
"""Segment cells with a small U-shaped network; each level of its decoder has a head, and the loss uses all of them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU()
    )


class Cells(nn.Module):
    def __init__(self, widths=(8, 16, 32), classes=3):
        super().__init__()
        self.down = nn.ModuleList(double(i, o) for i, o in zip((1, *widths), widths))
        self.up = nn.ModuleList(double(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.heads = nn.ModuleList(nn.Conv2d(w, classes, 1) for w in widths[::-1])

    def forward(self, x):
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        outputs = [self.heads[0](x)]
        for block, head, skip in zip(self.up, self.heads[1:], skips[-2::-1]):
            x = block(torch.cat([skip, F.interpolate(x, scale_factor=2.0)], 1))
            outputs.append(head(x))
        return outputs


def supervision(outputs, mask, weights=(0.2, 0.3, 1.0)):
    total = 0.0
    for weight, logits in zip(weights, outputs):
        factor = mask.shape[-1] // logits.shape[-1]
        total = total + weight * F.cross_entropy(logits, mask[:, ::factor, ::factor])
    return total


def slides(count, size, generator):
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    masks = torch.zeros(count, size, size, dtype=torch.long)
    for mask in masks:
        for _ in range(4):
            y, x, r = (torch.rand(3, generator=generator) * torch.tensor([size, size, 8.0])).tolist()
            distance = (rows - y) ** 2 + (columns - x) ** 2
            mask[distance < (r + 4) ** 2] = 1
            mask[distance < (r / 2 + 1) ** 2] = 2
    return (masks.float() - 1 + 0.5 * torch.randn(count, size, size, generator=generator))[:, None], masks


def main():
    torch.manual_seed(88)
    pictures, masks = slides(120, 48, torch.Generator().manual_seed(89))
    model = Cells()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(6):
        for rows in torch.randperm(120).split(8):
            loss = supervision(model(pictures[rows]), masks[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
