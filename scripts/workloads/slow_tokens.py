# expect: slow_item line guilty
# also: data_loader_wait slow_steps too_few_workers
"""A streaming data set tokenizes each line of its text again in every epoch, with merges found by brute force."""
import random

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

random.seed(2)
WORDS = ["low", "lower", "newest", "widest", "new", "wide", "lowest", "newer"]
MERGES = [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w"), ("n", "e"), ("ne", "w"), ("w", "i"), ("d", "est")]
LINES = [" ".join(random.choices(WORDS, k=120)) for _ in range(3000)]


def tokenize(line):
    symbols = list(line)
    for left, right in MERGES:
        position = 0
        while position < len(symbols) - 1:  # guilty
            if symbols[position] == left and symbols[position + 1] == right:  # guilty
                symbols[position : position + 2] = [left + right]
            position += 1  # guilty
    return symbols


class Text(IterableDataset):
    def __iter__(self):  # guilty
        info = get_worker_info()
        for line in LINES[info.id :: info.num_workers]:
            ids = [hash(symbol) % 256 for symbol in tokenize(line)][:64]
            yield torch.tensor(ids + [0] * (64 - len(ids)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(256, 64)
        self.head = torch.nn.Linear(64, 256)

    def forward(self, ids):
        return self.head(self.table(ids))


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Text(), batch_size=32, num_workers=2, persistent_workers=True)
    for _ in range(3):
        for ids in loader:
            logits = model(ids[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
