# expect: healthy
"""Like dense_embedding_clicks.py with small tables: most of their rows are in each batch."""
import torch
from torch import nn

ROWS = (900, 300, 40, 12)


class Clicks(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in ROWS)
        self.top = nn.Sequential(
            nn.Linear(width * len(ROWS), 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, fields):
        return self.top(torch.cat([table(fields[:, n]) for n, table in enumerate(self.tables)], 1)).squeeze(1)


def main(steps=150, batch=1024):
    torch.manual_seed(0)
    model = Clicks()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        fields = torch.stack([torch.randint(0, rows, (batch,)) for rows in ROWS], 1)
        clicked = ((fields[:, 0] + fields[:, 2]) % 3 == 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(fields), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
