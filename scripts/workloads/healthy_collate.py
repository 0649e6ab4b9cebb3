# expect: healthy
"""The fixed twin of slow_collate_pad.py: one tensor operation encodes a whole batch."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

random.seed(0)
torch.manual_seed(0)
SYMBOLS = 24
sequences = [([random.randrange(SYMBOLS) for _ in range(random.randint(30, 60))], random.randint(0, 1)) for _ in range(6_400)]


def pad_collate(samples):
    padded = torch.tensor([sequence + [SYMBOLS] * (60 - len(sequence)) for sequence, _ in samples])
    one_hot = nn.functional.one_hot(padded, SYMBOLS + 1)[..., :SYMBOLS].float()
    return one_hot.flatten(1), torch.tensor([label for _, label in samples])


model = nn.Sequential(nn.Linear(60 * SYMBOLS, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
loader = DataLoader(sequences, batch_size=64, shuffle=True, num_workers=1, collate_fn=pad_collate)
for batch, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch), labels)
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 4))
