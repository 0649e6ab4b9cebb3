# expect: unchanging_work line guilty
# options: --inspect
"""A small set-prediction detector: convolutional features, sine positions, a transformer with object queries."""
import math

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, QUERIES, WIDTH = 5, 12, 64


class SinePositions(nn.Module):
    """Sine codes of the row and the column of each cell, normalised by the size of the picture."""

    def __init__(self, width, temperature=10000.0):
        super().__init__()
        self.half, self.temperature = width // 2, temperature

    def forward(self, features):
        batch, _, height, wide = features.shape
        padding = torch.zeros(batch, height, wide, dtype=torch.bool, device=features.device)
        rows = (~padding).cumsum(1, dtype=torch.float32)
        columns = (~padding).cumsum(2, dtype=torch.float32)
        rows = rows / (rows[:, -1:, :] + 1e-6) * 2 * math.pi
        columns = columns / (columns[:, :, -1:] + 1e-6) * 2 * math.pi
        steps = torch.arange(self.half, dtype=torch.float32, device=features.device)
        steps = self.temperature ** (2 * torch.div(steps, 2, rounding_mode="floor") / self.half)
        codes = []
        for place in (rows, columns):
            angle = place[..., None] / steps  # guilty
            codes.append(torch.stack([angle[..., 0::2].sin(), angle[..., 1::2].cos()], 4).flatten(3))  # guilty
        return torch.cat(codes, 3).permute(0, 3, 1, 2)  # guilty


class DecoderLayer(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.among = nn.MultiheadAttention(width, heads, batch_first=True)
        self.across = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, objects, queries, memory, places):
        q = objects + queries
        objects = self.norms[0](objects + self.among(q, q, objects, need_weights=False)[0])
        found = self.across(objects + queries, memory + places, memory, need_weights=False)[0]
        objects = self.norms[1](objects + found)
        return self.norms[2](objects + self.mlp(objects))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 4, 4), nn.ReLU(), nn.Conv2d(32, WIDTH, 1)
        )
        self.positions, self.places = SinePositions(WIDTH), None
        self.queries = nn.Embedding(QUERIES, WIDTH)
        self.decoder = nn.ModuleList([DecoderLayer(WIDTH)])
        self.kind, self.box = nn.Linear(WIDTH, CLASSES + 1), nn.Linear(WIDTH, 4)

    def forward(self, pictures):
        features = self.body(pictures)
        places = self.positions(features)  # guilty
        # fixed: self.places = places = self.positions(features) if self.places is None else self.places
        memory, places = (each.flatten(2).transpose(1, 2) for each in (features, places))
        queries = self.queries.weight.expand(len(pictures), -1, -1)
        objects = torch.zeros_like(queries)
        for layer in self.decoder:
            objects = layer(objects, queries, memory, places)
        return self.kind(objects), self.box(objects).sigmoid()


def scene(count, size, generator):
    """Pictures with one bright rectangle in each, with its class given by the colour mix."""
    pictures = 0.3 * torch.randn(count, 3, size, size, generator=generator)
    kinds = torch.randint(CLASSES, (count,), generator=generator)
    palette = torch.linspace(0.2, 1.5, CLASSES)[:, None] * torch.tensor([1.0, -0.5, 0.7])
    boxes = torch.rand(count, 4, generator=generator) * 0.3 + torch.tensor([0.3, 0.3, 0.15, 0.15])
    for picture, kind, box in zip(pictures, kinds, boxes):
        cx, cy, w, h = (box * size).round().int().tolist()
        picture[:, max(cy - h // 2, 0):cy + h // 2, max(cx - w // 2, 0):cx + w // 2] += palette[kind][:, None, None]
    return pictures, kinds, boxes


def criterion(kinds, boxes, true_kinds, true_boxes):
    """The query nearest to the object answers for it, all others say "nothing"."""
    with torch.no_grad():
        best = (boxes - true_boxes[:, None]).abs().sum(-1).argmin(1)
    rows = torch.arange(len(best))
    wanted = torch.full(kinds.shape[:2], CLASSES)
    wanted[rows, best] = true_kinds
    weight = torch.ones(CLASSES + 1)
    weight[-1] = 0.1
    return F.cross_entropy(kinds.transpose(1, 2), wanted, weight) + 5 * F.l1_loss(boxes[rows, best], true_boxes)


def main(steps=100, batch=8, size=96):
    torch.manual_seed(4)
    pictures, kinds, boxes = scene(320, size, torch.Generator().manual_seed(8))
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    for step in range(steps):
        some = torch.randint(len(pictures), (batch,))
        loss = criterion(*model(pictures[some]), kinds[some], boxes[some])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print("step", step, "loss", "%.5f" % loss.item())


if __name__ == "__main__":
    main()
