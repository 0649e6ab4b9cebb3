# expect: empty_cache_in_step line guilty
# also: allocator_retries small_batch busy_but_idle_units launch_bound
"""Empties the allocator's cache in each step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(part for _ in range(12) for part in (nn.Linear(2048, 2048), nn.GELU()))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(32, 4096, 2048, device="cuda")
for step in range(200):
    x = data[step % 32] * 2
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del x
    torch.cuda.empty_cache()  # guilty
print("loss", loss.item())
