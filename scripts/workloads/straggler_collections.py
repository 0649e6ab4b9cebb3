# expect: straggler_rank
# also: gc_pause slow_steps python_overhead
# run: torchrun --nproc-per-node 4
"""The last of four ranks keeps many objects and has them all looked at in each step."""
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
kept = [{"step": number, "seen": [number]} for number in range(400_000 if rank == 3 else 4)]
for step in range(60):
    batch = torch.randn(64, 48)
    loss = (model(batch) - batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 3:
        gc.collect()
print("rank", rank, "loss", loss.item(), len(kept))
dist.destroy_process_group()
