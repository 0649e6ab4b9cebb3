# expect: healthy
# options: --inspect
"""Grade the wear of machine parts; the confusion matrix and the recall are gathered from the outputs of the training pass."""
import torch
from torch import nn
from torch.nn import functional as F

GRADES, INPUTS = 5, 64


class Confusion:
    """Counts of (truth, answer) pairs; answers come detached, so nothing of the graph is kept."""

    def __init__(self):
        self.counts = torch.zeros(GRADES, GRADES, dtype=torch.long)

    def update(self, logits, truth):
        pairs = truth * GRADES + logits.argmax(1)
        self.counts += torch.bincount(pairs, minlength=GRADES**2).view(GRADES, GRADES)

    def close(self):
        recall = self.counts.diagonal() / self.counts.sum(1).clamp(min=1)
        kept = self.counts.diagonal().sum().item() / self.counts.sum().item()
        self.counts.zero_()
        return kept, recall.mean().item()


class Wear(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(INPUTS, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, width),
                                    nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, GRADES))

    def forward(self, x):
        return self.layers(x)


def main():
    torch.manual_seed(71)
    readings = torch.randn(6400, INPUTS)
    wear = (readings[:, :8].sum(1) + 0.5 * readings[:, 8] * readings[:, 9] + torch.randn(6400)) / 3
    grades = torch.bucketize(wear, torch.tensor([-1.0, -0.3, 0.3, 1.0]))
    model, confusion = Wear(), Confusion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(4):
        total = torch.zeros(())
        for rows in torch.randperm(6400).split(256):
            logits = model(readings[rows])
            loss = F.cross_entropy(logits, grades[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            confusion.update(logits.detach(), grades[rows])
            total += loss.detach()
        right, recall = confusion.close()
        print(f"epoch {epoch}: loss {total.item() / 25:.4f} right {right:.4f} recall {recall:.4f}")


if __name__ == "__main__":
    main()
