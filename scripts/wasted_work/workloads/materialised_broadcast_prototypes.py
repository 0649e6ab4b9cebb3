# expect: materialised_broadcast line guilty
# options: --inspect
"""Few-shot learning with class prototypes: episodes of many ways, squared distances of all queries to all prototypes."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WAYS, SHOTS, QUERIES, INPUTS, WIDTH = 40, 3, 5, 100, 48


def squared_distances(queries, prototypes):
    n, m = len(queries), len(prototypes)
    queries = queries.unsqueeze(1).expand(n, m, -1).contiguous()  # guilty
    # fixed: lengths = queries.square().sum(1)[:, None] + prototypes.square().sum(1)[None, :]
    prototypes = prototypes.unsqueeze(0).expand(n, m, -1).contiguous()  # guilty
    # fixed: pass
    return (queries - prototypes).pow(2).sum(2)  # guilty
    # fixed: return lengths - 2 * queries @ prototypes.t()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(INPUTS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, WIDTH))

    def forward(self, x):
        return self.layers(x)


class Episodes:
    def __init__(self, classes=200, count=100):
        self.classes, self.count = torch.randn(classes, INPUTS), count

    def __len__(self):
        return self.count

    def __iter__(self):
        for _ in range(self.count):
            chosen = self.classes[torch.randperm(len(self.classes))[:WAYS]]
            yield chosen[:, None] + 1.5 * torch.randn(WAYS, SHOTS + QUERIES, INPUTS)


def episode_loss(encoder, samples):
    vectors = encoder(samples)
    prototypes = vectors[:, :SHOTS].mean(1)
    queries = vectors[:, SHOTS:].reshape(-1, WIDTH)
    logits = -squared_distances(queries, prototypes)  # guilty
    target = torch.arange(WAYS).repeat_interleave(QUERIES)
    return F.cross_entropy(logits, target), (logits.detach().argmax(1) == target).float().mean()


def main():
    torch.manual_seed(33)
    encoder = Encoder()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    for number, samples in enumerate(Episodes()):
        loss, right = episode_loss(encoder, samples)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 20 == 0:
            print(f"episode {number} loss {loss.item():.5f} right {right.item():.3f}")


if __name__ == "__main__":
    main()
