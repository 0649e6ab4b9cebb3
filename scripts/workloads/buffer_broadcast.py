# expect: buffer_broadcast line guilty
# also: slow_steps
# run: torchrun --nproc-per-node 2
# held out
"""Each forward pass first sends a large constant table, registered as a buffer, from rank 0 to all others."""
import torch
import torch.distributed as dist
from torch import nn


class Positions(nn.Module):
    def __init__(self, length=4096, width=512):
        super().__init__()
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(width)[None] / width)
        self.register_buffer("table", angles.sin())
        self.project = nn.Linear(width, 64)

    def forward(self, positions):
        return self.project(self.table[positions])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.parallel.DistributedDataParallel(Positions())  # guilty
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(200):
        loss = model(torch.randint(0, 4096, (256,))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    dist.destroy_process_group()


main()
