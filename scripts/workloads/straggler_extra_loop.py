# expect: straggler_rank line guilty
# also: python_overhead slow_steps
# run: torchrun --nproc-per-node 8
"""Eight ranks; one of them solves something else for a while in each step, and seven wait for it."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
system = torch.eye(160) * 4 + torch.rand(160, 160) / 160
flat = torch.zeros(sum(parameter.numel() for parameter in net.parameters()))
for step in range(60):
    inputs = torch.randn(32, 64)
    loss = net(inputs).square().mean()
    adam.zero_grad()
    loss.backward()  # guilty
    if rank == 3:
        solution = torch.ones(160, 1)  # guilty
        for _ in range(400):  # guilty
            solution = system @ solution / 5  # guilty
    torch.cat([parameter.grad.flatten() for parameter in net.parameters()], out=flat)
    dist.all_reduce(flat)
    adam.step()
if rank == 3:
    print("loss", loss.item(), float(solution.sum()))
dist.destroy_process_group()
