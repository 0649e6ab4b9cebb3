# expect: healthy
# run: torchrun --nproc-per-node 2
"""A deep, narrow model whose unused parameters DDP searches for and finds none: that takes one or two percent of a step."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
blocks = [nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU()) for _ in range(60)]
model = nn.Sequential(*blocks)
model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(150):
    x = torch.randn(4, 32)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
dist.destroy_process_group()
