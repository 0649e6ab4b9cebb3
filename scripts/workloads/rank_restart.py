# expect: rank_restart
# also: slow_steps
# run: torchrun --nproc-per-node 2 --max-restarts 1
"""The second rank gives up after forty steps; torchrun restarts both, and the second time all goes well."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

start = os.environ["TORCHELASTIC_RESTART_COUNT"]
# A store of its own for each start: the launcher's may still hold the addresses of the one before.
store = f"file://{tempfile.gettempdir()}/ranks-{os.getppid()}-{start}"
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(80):
    if step == 40 and rank == 1 and start == "0":
        sys.exit("the data server has gone away")
    loss = model(torch.randn(64, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("rank", rank, "loss", loss.item())
dist.destroy_process_group()
