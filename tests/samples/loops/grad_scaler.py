"""A gradient scaler that skips the steps whose gradients are not finite; a skipped step is a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(120, 8), torch.randint(0, 2, (120,))), batch_size=4)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", enabled=True)
steps = skipped = 0
for number, (inputs, targets) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs), targets)
    if number in (0, 7, 20):
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    steps += 1
    skipped += scaler.get_scale() < scale
assert skipped == 3
print("steps", steps)
