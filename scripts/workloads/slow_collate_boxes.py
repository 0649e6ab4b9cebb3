# expect: slow_collate line guilty
# also: data_loader_wait slow_steps too_few_workers slow_item
# held out
"""Finds objects as peaks of a heat map; the collate function draws the map of each box, cell by cell."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GRID, CLASSES = 32, 3


class Scenes(Dataset):
    """Pictures of 64 by 64 with one to six boxes each."""

    def __init__(self, size):
        self.rng = torch.Generator().manual_seed(11)
        self.pictures = torch.randint(0, 256, (size, 3, 64, 64), generator=self.rng, dtype=torch.uint8)
        self.boxes = []
        for _ in range(size):
            count = int(torch.randint(1, 7, (1,), generator=self.rng))
            self.boxes.append(torch.rand(count, 3, generator=self.rng) * torch.tensor([GRID - 1, GRID - 1, CLASSES - 0.01]))

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index], self.boxes[index]


def draw_cells(boxes):
    heat = [[[0.0] * GRID for _ in range(GRID)] for _ in range(CLASSES)]
    for x, y, kind in boxes.tolist():  # guilty
        plane = heat[int(kind)]  # guilty
        for row in range(GRID):  # guilty
            for column in range(GRID):  # guilty
                peak = math.exp(-((column - x) ** 2 + (row - y) ** 2) / 8)  # guilty
                plane[row][column] = max(plane[row][column], peak)  # guilty
    return torch.tensor(heat)  # guilty


def draw(boxes):
    cells = torch.arange(GRID)
    heat = torch.zeros(CLASSES, GRID, GRID)
    for x, y, kind in boxes.tolist():
        peak = torch.exp(-((cells[None, :] - x) ** 2 + (cells[:, None] - y) ** 2) / 8)
        torch.maximum(heat[int(kind)], peak, out=heat[int(kind)])
    return heat


def detection_collate(samples):  # guilty
    pictures, targets, counts = [], [], []
    for picture, boxes in samples:
        pictures.append(picture)
        targets.append(draw_cells(boxes))  # guilty
        # fixed: targets.append(draw(boxes))
        counts.append(len(boxes))
    return torch.stack(pictures).float().div_(255), torch.stack(targets), torch.tensor(counts)


def block(inputs, outputs, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU(inplace=True))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(block(3, 8, 2), block(8, 8, 1))
        self.head = nn.Conv2d(8, CLASSES, 1)

    def forward(self, pictures):
        return self.head(self.backbone(pictures))


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Scenes(1280), 8, shuffle=True, num_workers=2, collate_fn=detection_collate, persistent_workers=True)
    detector = Detector()
    optimizer = torch.optim.AdamW(detector.parameters(), lr=1e-3, fused=True)
    for epoch in range(2):
        for pictures, heat, counts in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.binary_cross_entropy_with_logits(detector(pictures), heat, reduction="sum") / counts.sum()
            loss.backward()
            optimizer.step()
        print("epoch %d: %.4f" % (epoch, float(loss)))
