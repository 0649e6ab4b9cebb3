# expect: slow_steps line guilty
# also: python_overhead
"""Writes a report of all weights every 25th step."""
import json
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(192, 256), torch.randint(0, 64, (192,))
report = tempfile.TemporaryFile("w")
for step in range(300):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()  # guilty
    if step % 25 == 24:
    # fixed: if False:
        weights = {name: value.detach().flatten()[:40_000].tolist() for name, value in model.named_parameters()}  # guilty
        report.seek(0)  # guilty
        json.dump(weights, report)  # guilty
report.close()
print("loss", loss.item())
