# expect: slow_collate line guilty
# also: data_loader_wait slow_steps too_few_workers
"""Samples are cheap; the collate function pads and one-hot encodes them number by number in Python."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

random.seed(0)
torch.manual_seed(0)
SYMBOLS = 24
sequences = [([random.randrange(SYMBOLS) for _ in range(random.randint(30, 60))], random.randint(0, 1)) for _ in range(16_000)]


def pad_collate(samples):  # guilty
    longest = 60
    rows, labels = [], []
    for sequence, label in samples:
        row = []
        for position in range(longest):
            one_hot = [0.0] * SYMBOLS
            if position < len(sequence):
                one_hot[sequence[position]] = 1.0
            row.extend(one_hot)
        rows.append(row)
        labels.append(label)
    return torch.tensor(rows), torch.tensor(labels)


model = nn.Sequential(nn.Linear(60 * SYMBOLS, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
loader = DataLoader(sequences, batch_size=64, shuffle=True, num_workers=2, collate_fn=pad_collate)
for batch, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch), labels)
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 4))
