# expect: python_overhead line guilty
"""A character model that cuts its own batches from a text, token by token, as small GPT scripts do."""
import random

import torch
import torch.nn as nn
from torch.nn import functional as F

block_size, batch_size, vocabulary = 64, 48, 96
text = "".join(random.Random(3).choices([chr(32 + i) for i in range(vocabulary)], k=50_000))


def encode(piece):
    return [ord(character) - 32 for character in piece]


def get_batch():
    starts = [random.randrange(len(text) - block_size - 1) for _ in range(batch_size)]
    x = torch.stack([torch.tensor(encode(text[s : s + block_size])) for s in starts])  # guilty
    y = torch.stack([torch.tensor(encode(text[s + 1 : s + block_size + 1])) for s in starts])
    return x, y


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(vocabulary, 32)
        self.head = nn.Linear(32, vocabulary)

    def forward(self, idx, targets):
        logits = self.head(self.table(idx))
        return F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))


random.seed(0)
torch.manual_seed(0)
model = Bigram()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
# fixed: optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3); batches = [get_batch() for _ in range(50)]
for iteration in range(250):
    xb, yb = get_batch()  # guilty
    # fixed: xb, yb = batches[iteration % len(batches)]
    loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # guilty
print(loss.item())
