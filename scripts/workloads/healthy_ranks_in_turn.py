# expect: healthy
# also: python_overhead slow_steps
# run: torchrun --nproc-per-node 4
"""Four ranks whose samples are longer now and then, each in its turn: none of them is the slow one."""
import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(2)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
sgd = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(80):
    time.sleep(0.03 if step % 4 == rank else 0.01)
    loss = net(torch.randn(16, 32)).square().mean()
    sgd.zero_grad()
    loss.backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    sgd.step()
print("rank", rank, "loss", loss.item())
dist.destroy_process_group()
