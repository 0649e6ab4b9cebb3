# expect: host_sync_in_step line guilty
# also: python_overhead
"""Turns all logits of a validation score into Python lists in each training step."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 400))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
seen = []
for step in range(200):
    x, y = torch.randn(128, 64), torch.randint(0, 400, (128,))
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen.append(len(logits.tolist()))  # guilty
print("rows", sum(seen))
