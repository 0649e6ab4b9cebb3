# expect: too_few_workers line guilty
# also: data_loader_wait slow_steps slow_item
# held out
"""Learns to turn sentences round, seq2seq with padding by hand; each pair of sentences comes from a far store."""
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS, WORDS = 0, 1, 2, 200


class Store:
    """Answers as a key-value store in another building does."""

    def __init__(self, latency):
        self.latency = latency

    def get(self, key):
        time.sleep(self.latency)
        rng = random.Random(key)
        return [rng.randrange(3, WORDS) for _ in range(rng.randint(5, 14))]


class Pairs(Dataset):
    def __init__(self, size):
        self.size = size
        self.store = Store(latency=0.0025)

    def __len__(self):
        return self.size

    def __getitem__(self, key):
        source = self.store.get(key)
        return source + [EOS], [BOS] + source[::-1] + [EOS]


def pad(sentences):
    longest = max(map(len, sentences))
    return torch.tensor([sentence + [PAD] * (longest - len(sentence)) for sentence in sentences])


def collate(pairs):
    sources, targets = zip(*pairs)
    return pad(sources), pad(targets)


class Seq2Seq(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, WORDS)

    def forward(self, source, target):
        _, state = self.encoder(self.embed(source))
        states, _ = self.decoder(self.embed(target), state)
        return self.out(states)


def train(model, loader, optimizer, criterion, clip):
    model.train()
    for source, target in loader:
        optimizer.zero_grad()
        output = model(source, target[:, :-1])
        loss = criterion(output.flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return loss.item()


torch.manual_seed(1)
BATCH = 16
train_loader = DataLoader(Pairs(70 * BATCH), BATCH, True, num_workers=1, collate_fn=collate, persistent_workers=True)  # guilty
# fixed: train_loader = DataLoader(Pairs(70 * BATCH), BATCH, True, num_workers=6, collate_fn=collate, persistent_workers=True)
model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
for epoch in range(1, 3):
    started = time.perf_counter()
    final = train(model, train_loader, optimizer, criterion, clip=1.0)
    print(f"Epoch {epoch:02} | {time.perf_counter() - started:.0f} s | loss {final:.3f}")
