# expect: explicit_synchronize line guilty
# also: launch_bound small_batch busy_but_idle_units tensor_cores_unused
"""Calls torch.cuda.synchronize() after every phase of a step, to time it."""

import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(part for _ in range(30) for part in (nn.Linear(1024, 1024), nn.ReLU()))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(1024, 1024, device="cuda")
spent = [0.0, 0.0]
for step in range(800):
    begin = time.perf_counter()
    for part in model:
        x = part(x)
        torch.cuda.synchronize()  # guilty
    spent[0] += time.perf_counter() - begin
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    x = torch.randn(1024, 1024, device="cuda")
print("forward", spent[0] > 0, loss.item())
