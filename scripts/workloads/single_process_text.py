# expect: data_loader_single_process line guilty
"""A bag-of-words classifier that tokenizes in its collate function."""
import argparse
import random

import torch
from torch.utils.data import DataLoader

WORDS = ["gradient", "batch", "epoch", "tensor", "loss", "kernel", "stream", "layer", "model", "token"]


def make_corpus(size):
    rng = random.Random(1)
    return [(" ".join(rng.choices(WORDS, k=120)), rng.randint(0, 1)) for _ in range(size)]


def collate(samples):
    rows, labels = [], []
    for text, label in samples:
        counts = [0.0] * 512
        for word in text.lower().split():
            for size in (2, 3):
                for start in range(len(word) - size + 1):
                    counts[hash(word[start : start + size]) % 512] += 1.0  # guilty
        rows.append(counts)
        labels.append(label)
    return torch.tensor(rows), torch.tensor(labels)


class TextModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(512, 128)
        self.out = torch.nn.Linear(128, 2)

    def forward(self, rows):
        return self.out(torch.relu(self.hidden(rows)))


def train(model, loader, optimizer, epochs):
    for _ in range(epochs):
        for rows, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(rows), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return float(loss)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = TextModel()
    loader = DataLoader(  # guilty
        make_corpus(2048), batch_size=32, shuffle=True, collate_fn=collate
        # fixed: make_corpus(2048), batch_size=32, shuffle=True, collate_fn=collate, num_workers=2, persistent_workers=True
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print("loss", round(train(model, loader, optimizer, args.epochs), 4))


if __name__ == "__main__":
    main()
