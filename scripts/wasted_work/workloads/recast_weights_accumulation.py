# expect: recast_weights line guilty
# options: --inspect
"""Name the language of a word from its letters, in bfloat16; eight small batches add up to one update."""

import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS, LANGUAGES, LONGEST = 28, 12, 14
PARTS, BATCH, UPDATES = 8, 16, 70


class Speller(nn.Module):
    def __init__(self, width=320, hidden=640):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 24, padding_idx=0)
        self.first = nn.Linear(24 * LONGEST, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.blocks)
        self.head = nn.Linear(width, LANGUAGES)

    def forward(self, words):
        x = self.first(self.letters(words).flatten(1))  # guilty
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))  # guilty
        return self.head(x)  # guilty


def vocabulary(count, generator):
    chances = torch.rand(LANGUAGES, LETTERS - 1, generator=generator) ** 4 + 1e-3
    language = torch.randint(LANGUAGES, (count,), generator=generator)
    words = torch.multinomial(chances[language], LONGEST, replacement=True, generator=generator) + 1
    lengths = torch.randint(4, LONGEST + 1, (count, 1), generator=generator)
    return words.masked_fill(torch.arange(LONGEST) >= lengths, 0), language


def update(model, optimizer, words, languages):
    total = 0.0
    for part, answer in zip(words.chunk(PARTS), languages.chunk(PARTS)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(part).float(), answer) / PARTS
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


def main():
    torch.manual_seed(12)
    words, languages = vocabulary(PARTS * BATCH * 10, torch.Generator().manual_seed(4))
    model = Speller()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(UPDATES):
        rows = torch.randint(len(words), (PARTS * BATCH,))
        loss = update(model, optimizer, words[rows], languages[rows])
        # fixed: with torch.autocast("cpu", dtype=torch.bfloat16): loss = update(model, optimizer, words[rows], languages[rows])
        if number % 10 == 9:
            print(f"update {number + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
