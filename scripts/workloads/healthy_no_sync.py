# expect: healthy
"""Accumulates gradients over eight micro-batches, and exchanges them after the last one only."""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

ACCUMULATE = 8


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(50):
        optimizer.zero_grad()
        for micro in range(ACCUMULATE):
            inputs = torch.randn(64, 256)
            is_last = micro == ACCUMULATE - 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = (model(inputs) - inputs).square().mean() / ACCUMULATE
                loss.backward()
        optimizer.step()
    if rank == 0:
        print("loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(str(29600 + os.getpid() % 300),), nprocs=2)
