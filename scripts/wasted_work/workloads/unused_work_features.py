# expect: unused_work line guilty
# options: --inspect
"""Distil a segmentation network into a small one by its soft masks (the hint term was taken out of the loss)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 6


def unit(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(4, outputs), nn.ReLU())


class Segmenter(nn.Module):
    """Returns the logits of the pixels, and the features of the decoder in the width of the hints."""

    def __init__(self, width, hint=None):
        super().__init__()
        self.down = nn.Sequential(unit(3, width, 2), unit(width, width), unit(width, 2 * width, 2))
        self.up = unit(2 * width, width)
        self.classify = nn.Conv2d(width, CLASSES, 1)
        self.hint = nn.Sequential(nn.Conv2d(width, hint, 3, padding=1), nn.ReLU(), nn.Conv2d(hint, hint, 1)) if hint else None

    def forward(self, pictures):
        features = self.up(F.interpolate(self.down(pictures), scale_factor=2.0))
        logits = F.interpolate(self.classify(features), scale_factor=2.0, mode="bilinear", align_corners=False)
        if self.hint is not None:
        # fixed: if False:
            features = F.normalize(self.hint(features), dim=1)  # guilty
        return logits, features


class Scenes:
    """Pictures of overlapping discs of six materials."""

    def __init__(self, count, size, seed):
        g = torch.Generator().manual_seed(seed)
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.masks = torch.zeros(count, size, size, dtype=torch.long)
        for mask in self.masks:
            for kind in range(1, CLASSES):
                y, x, r = (torch.rand(3, generator=g) * torch.tensor([size, size, size / 3.0])).tolist()
                mask[(rows - y) ** 2 + (columns - x) ** 2 < r * r] = kind
        colours = torch.randn(CLASSES, 3, generator=g)
        self.pictures = colours[self.masks].permute(0, 3, 1, 2) + 0.4 * torch.randn(count, 3, size, size, generator=g)

    def batches(self, size):
        for rows in torch.randperm(len(self.masks)).split(size):
            flip = torch.rand(()) < 0.5
            pictures, masks = self.pictures[rows], self.masks[rows]
            yield (pictures.flip(3), masks.flip(2)) if flip else (pictures, masks)


def distillation(student, teacher, masks, temperature=2.0, share=0.5):
    soft = F.kl_div(F.log_softmax(student / temperature, 1), F.softmax(teacher / temperature, 1), reduction="none")
    return share * temperature**2 * soft.sum(1).mean() + (1 - share) * F.cross_entropy(student, masks)


def main(epochs=5, size=8):
    torch.manual_seed(77)
    scenes = Scenes(160, 48, seed=2)
    teacher, student = Segmenter(24).eval(), Segmenter(12, hint=64)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        total = 0.0
        for pictures, masks in scenes.batches(size):
            with torch.no_grad():
                guide = teacher(pictures)[0]
            logits, _ = student(pictures)  # guilty
            loss = distillation(logits, guide, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / 20:.6f}")


if __name__ == "__main__":
    main()
