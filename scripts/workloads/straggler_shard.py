# expect: straggler_rank line guilty
# also: data_loader_single_process data_loader_wait slow_item slow_steps storage_bound_input
# run: torchrun --nproc-per-node 4
"""Four ranks train one model; the shard of the second one lies on something slow."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, rank):
        self.wait = 0.01 if rank == 1 else 0.001

    def __len__(self):
        return 8 * 60

    def __getitem__(self, index):
        time.sleep(self.wait)
        return torch.full((32,), index / 480), index % 4


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)), gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for inputs, targets in DataLoader(Shard(dist.get_rank()), batch_size=8):  # guilty
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print("loss", loss.item())
dist.destroy_process_group()
