# expect: straggler_rank line guilty
# also: python_overhead slow_steps checkpoint_stall
# run: torchrun --nproc-per-node 2
"""Only the first rank keeps statistics, in plain Python, and the other one waits for it in each all-reduce."""
import torch
import torch.distributed as dist
from torch import nn


def statistics(outputs):
    counts = {}
    for row in outputs.tolist():  # guilty
        for value in row:
            key = int(value * 50)
            counts[key] = counts.get(key, 0) + 1
    return counts


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(3)
net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
history = []
for step in range(200):
    batch = torch.randn(256, 128)
    output = net(batch)
    loss = nn.functional.mse_loss(output, batch)
    sgd.zero_grad()
    loss.backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    sgd.step()
    if rank == 0:
        history.append(statistics(output.detach()))  # guilty
if rank == 0:
    print("loss", loss.item(), "bins", len(history[-1]))
dist.destroy_process_group()
