# expect: thread_oversubscription
"""Asks for far more compute threads than any small machine has cores."""
import os

import torch
from torch import nn

torch.set_num_threads(8 * len(os.sched_getaffinity(0)))
# fixed: pass
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(256, 256), torch.randint(0, 10, (256,))
for step in range(150):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
