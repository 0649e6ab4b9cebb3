# expect: straggler_rank
# also: data_loader_single_process data_loader_wait slow_steps
"""Two ranks; the second reads its shard from something slow."""
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, rank):
        self.wait = 0.0002 if rank == 0 else 0.0025

    def __len__(self):
        return 16 * 100

    def __getitem__(self, index):
        time.sleep(self.wait)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 8


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 8)), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, targets in DataLoader(Shard(rank), batch_size=16):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print("loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(str(29600 + os.getpid() % 300),), nprocs=2)
