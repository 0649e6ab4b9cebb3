"""A small GPT script: no loader, each batch is cut from a text by a function of the program's own."""

import torch
from torch import nn

torch.manual_seed(0)
text = list(range(96)) * 500


def get_batch():
    starts = torch.randint(len(text) - 33, (32,))
    return torch.stack([torch.tensor(list(map(int, text[at : at + 32]))) for at in starts.tolist()])


model = nn.Sequential(nn.Embedding(96, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
for _ in range(60):
    batch = get_batch()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    steps += 1
print("steps", steps)
