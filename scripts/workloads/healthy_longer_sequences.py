# expect: healthy
"""A language model whose sequences grow during training, as a curriculum wants it: its steps grow with them."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
text = torch.randint(0, 96, (200_000,))
model = nn.Sequential(nn.Embedding(96, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 96))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(600):
    length = 16 + step // 5
    at = torch.randint(0, len(text) - length - 1, (16,))
    rows = at[:, None] + torch.arange(length + 1)
    batch = text[rows]
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"length {length} loss {loss.item():.3f}")
