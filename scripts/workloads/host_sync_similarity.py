# expect: host_sync_in_step line guilty
# also: python_overhead slow_steps
# held out
"""Contrastive learning on two noisy views; the whole similarity matrix goes to a list for a report at the end."""
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.project = nn.Linear(width, outputs)

    def forward(self, x):
        return F.normalize(self.project(self.trunk(x)), dim=-1)


def two_views(x):
    return x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.2)


def info_nce(similarity, temperature):
    targets = torch.arange(len(similarity))
    logits = similarity / temperature
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def main(steps=260, batch=384):
    torch.manual_seed(42)
    data = torch.randn(8192, 128)
    encoder = Encoder(128, 256, 64)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-4, fused=True)
    matrix = []
    for step in range(steps):
        chosen = torch.randint(0, len(data), (batch,))
        first, second = two_views(data[chosen])
        similarity = encoder(first) @ encoder(second).T
        loss = info_nce(similarity, 0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        matrix = similarity.tolist()  # guilty
        # fixed: matrix = similarity.tolist() if step == steps - 1 else matrix
    hits = sum(row.index(max(row)) == index for index, row in enumerate(matrix))
    print(f"loss {loss.item():.4f}, recall at 1: {hits / batch:.1%}")


if __name__ == "__main__":
    main()
