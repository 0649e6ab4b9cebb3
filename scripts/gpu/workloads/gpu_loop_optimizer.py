# expect: slow_optimizer
# also: launch_bound small_batch busy_but_idle_units
"""Updates 240 tensors one by one."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    *(part for _ in range(60) for part in (nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU()))
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
x = torch.randn(512, 128, device="cuda")
for step in range(100):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
