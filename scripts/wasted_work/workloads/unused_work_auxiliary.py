# expect: unused_work line guilty
# options: --inspect
"""Click prediction with a cross network; the model has a second tower for the dwell time, from the days of two targets."""
import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS = {"user_segment": 200, "item_topic": 150, "hour": 24, "device": 6, "country": 60, "campaign": 180}
NUMBERS = 10


class CrossLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, first, x):
        return first * self.linear(x) + x


class Ranker(nn.Module):
    def __init__(self, dim=16, tower=192):
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(size, dim) for name, size in FIELDS.items()})
        width = dim * len(FIELDS) + NUMBERS
        self.cross = nn.ModuleList(CrossLayer(width) for _ in range(2))
        self.click_tower = nn.Sequential(nn.Linear(width, tower), nn.ReLU(), nn.Linear(tower, tower // 2), nn.ReLU())
        self.dwell_tower = nn.Sequential(nn.Linear(width, tower), nn.ReLU(), nn.Linear(tower, tower // 2), nn.ReLU())
        self.click_out = nn.Linear(tower // 2, 1)
        self.dwell_out = nn.Linear(tower // 2, 1)

    def forward(self, categories, numbers):
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables.values())]
        first = torch.cat([*parts, numbers], 1)
        x = first
        for layer in self.cross:
            x = layer(first, x)
        click = self.click_out(self.click_tower(x)).squeeze(1)
        dwell = self.dwell_tower(x)  # guilty
        # fixed: dwell = None
        dwell = F.softplus(self.dwell_out(dwell)).squeeze(1)  # guilty
        # fixed: pass
        return {"click": click, "dwell": dwell}


def impressions(count, generator):
    sizes = list(FIELDS.values())
    categories = torch.stack([torch.randint(size, (count,), generator=generator) for size in sizes], 1)
    numbers = torch.randn(count, NUMBERS, generator=generator)
    taste = [torch.randn(size, generator=generator) for size in sizes]
    score = sum(t[categories[:, i]] for i, t in enumerate(taste)) * 0.5 + numbers @ torch.randn(NUMBERS, generator=generator) * 0.3
    return categories, numbers, (torch.rand(count, generator=generator) < score.sigmoid()).float()


def main(epochs=2, batch=512):
    torch.manual_seed(17)
    data = impressions(25000, torch.Generator().manual_seed(1))
    model = Ranker()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    for epoch in range(epochs):
        seen, total = 0, 0.0
        for rows in torch.randperm(len(data[0])).split(batch):
            categories, numbers, clicked = (part[rows] for part in data)
            outputs = model(categories, numbers)
            loss = F.binary_cross_entropy_with_logits(outputs["click"], clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, seen = total + loss.item() * len(rows), seen + len(rows)
        print(f"epoch {epoch}: log loss {total / seen:.6f}")


if __name__ == "__main__":
    main()
