"""The job that rank_causes.py starts: DDP on the CPU, whose rank LATE is slow by CAUSE.

torchrun --nproc-per-node N rank_causes_loop.py CAUSE LATE
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, STEPS = 16, 100
SLEEP_S, LATE_SLEEP_S = 0.0007, 0.0025
"""The time to read a sample."""
SPINNER = "import os; os.sched_setaffinity(0, {0})\nwhile True: pass"

cause, late = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
is_late = dist.get_rank() == late


class Shard(Dataset):
    """Samples that are read slowly, more slowly by the late rank; without delay if the cause is a shared core."""

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if cause != "pinned":
            time.sleep(LATE_SLEEP_S if is_late and cause == "data" else SLEEP_S)
        return torch.randn(64), index % 8


model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
extra = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
neighbour = None
if cause == "pinned" and is_late:
    os.sched_setaffinity(0, {0})
    neighbour = subprocess.Popen([sys.executable, "-c", SPINNER])
for inputs, targets in DataLoader(Shard(), batch_size=BATCH):
    optimizer.zero_grad()
    outputs = model(inputs)
    if cause == "pinned" or (cause == "compute" and is_late):
        with torch.no_grad():
            for _ in range(4):
                extra(torch.randn(128, 512))
    if cause == "garbage" and is_late:
        rubbish: list[list[object]] = [[] for _ in range(60_000)]
        for one in rubbish:
            one.append(rubbish)
        del rubbish
        gc.collect()
    nn.functional.cross_entropy(outputs, targets).backward()
    optimizer.step()
if neighbour is not None:
    neighbour.kill()
dist.destroy_process_group()
