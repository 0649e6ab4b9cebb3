# expect: straggler_rank
# also: slow_steps thread_oversubscription
# run: torchrun --nproc-per-node 2
"""The second rank may use one core only, which something else keeps busy."""
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
other = None
if rank == 1:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    other = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
torch.set_num_threads(1)
torch.manual_seed(rank)
model = DDP(nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(150):
    batch = torch.randn(64, 512)
    loss = (model(batch) - batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if other is not None:
    other.kill()
    other.wait()
print("rank", rank, "loss", loss.item())
dist.destroy_process_group()
