# expect: dense_embedding line guilty
# also: slow_optimizer
# held out
"""Word vectors by skip-gram with negative samples: two large tables, and each step looks at a few hundred words."""
import torch
from torch import nn

WORDS, WIDTH, BATCH, NEGATIVES = 60_000, 32, 256, 4


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Embedding(WORDS, WIDTH)
        self.context = nn.Embedding(WORDS, WIDTH)

    def forward(self, word, near, far):
        vector = self.centre(word)
        good = (vector * self.context(near)).sum(-1)
        bad = torch.bmm(self.context(far), vector.unsqueeze(-1)).squeeze(-1)
        return -(nn.functional.logsigmoid(good).mean() + nn.functional.logsigmoid(-bad).mean())


def pairs(generator):
    frequent = torch.rand(BATCH, 2, generator=generator).pow(4) * WORDS
    word, near = frequent.long().unbind(1)
    return word, near, torch.randint(0, WORDS, (BATCH, NEGATIVES), generator=generator)


def main(steps=120):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(9)
    model = SkipGram()
    # fixed: model = SkipGram(); model.centre.sparse = model.context.sparse = True
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    # fixed: optimizer = torch.optim.SparseAdam(model.parameters(), lr=2e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(*pairs(generator))
        loss.backward()
        optimizer.step()  # guilty
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
