"""A model that is called again and again without a loader; a call is a step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16)).eval()
token = torch.zeros(1, dtype=torch.long)
steps = 0
with torch.no_grad():
    for _ in range(30):
        token = model(token).argmax(-1)
        token.item()
        steps += 1
print("steps", steps)
