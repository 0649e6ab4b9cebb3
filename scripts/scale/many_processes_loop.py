"""The job that many_processes.py starts: ranks on the CPU that sum gradients and print a digest of their weights.

``many_processes_loop.py RANKS STEPS``. If the environment names a rank, this process is that rank; otherwise it forks
all ranks, so that PyTorch is loaded once, and its exit code is the number of ranks that failed.
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch
import torch._dynamo  # noqa: F401 - an optimizer loads it with its first step, which costs each rank seconds
import torch.distributed as dist
from torch import nn

ranks, steps = map(int, sys.argv[1:3])
meeting = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
torch.set_num_threads(1)


def train(rank: int) -> None:
    """Train one rank, and print its digest in one write, since the ranks share the pipe."""
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    torch.manual_seed(rank)
    model = nn.Linear(16, 4, bias=False)
    dist.broadcast(model.weight.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 / ranks)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
    learned = hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()
    os.write(1, f"rank {rank} learned {learned[:16]}\n".encode())
    dist.barrier()
    dist.destroy_process_group()


if "RANK" in os.environ:
    train(int(os.environ["RANK"]))
    sys.exit()
children = []
for number in range(ranks):
    child = os.fork()
    if child == 0:
        train(number)
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
