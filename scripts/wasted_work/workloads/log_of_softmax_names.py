# expect: log_of_softmax line guilty
# options: --inspect
"""Entity linking as one big classification: which of some thousand entities does a mention name, from its letter pairs?"""
import torch
import torch.nn as nn
import torch.nn.functional as F

ENTITIES, BUCKETS, PAIRS = 9000, 512, 14


class Linker(nn.Module):
    """Gives the probability of each entity."""

    def __init__(self, width=32):
        super().__init__()
        self.pairs = nn.EmbeddingBag(BUCKETS, width, mode="mean")
        self.hidden = nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width))
        self.entities = nn.Linear(width, ENTITIES)

    def forward(self, pairs):
        scores = self.entities(self.hidden(self.pairs(pairs)))
        return torch.softmax(scores, dim=-1)  # guilty
        # fixed: return torch.log_softmax(scores, dim=-1)


def likelihood_loss(chances, entities):
    logs = chances.log()  # guilty
    # fixed: logs = chances
    return F.nll_loss(logs, entities)


def mentions(count, generator):
    spelling = torch.randint(BUCKETS, (ENTITIES, PAIRS), generator=generator)
    entities = torch.randint(ENTITIES, (count,), generator=generator)
    pairs = spelling[entities]
    typo = torch.rand(pairs.shape, generator=generator) < 0.15
    pairs[typo] = torch.randint(BUCKETS, (int(typo.sum()),), generator=generator)
    return pairs, entities


def main(steps=100, batch=128):
    torch.manual_seed(23)
    pairs, entities = mentions(steps * batch, torch.Generator().manual_seed(24))
    model = Linker()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    average = None
    for step, (p, e) in enumerate(zip(pairs.split(batch), entities.split(batch))):
        loss = likelihood_loss(model(p), e)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
        if step % 20 == 19:
            print(f"after {step + 1} batches: {average:.6f}")


if __name__ == "__main__":
    main()
