"""The program that gpu_check.py records to check what a window of torch.profiler leaves behind: a launch-bound loop.

It has no reference to perfwrap. ``window_loop.py STEPS [pinned]`` prints the median times of steps by quarters of the
run, in ns, as JSON; with ``pinned`` a thread of the loader calls CUDA as well.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
QUARTERS = 4
LAYERS, WIDTH = 16, 64


def main(steps: int, pinned: bool) -> None:
    """Train, and print the times."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(steps * 8, WIDTH))
    loader = DataLoader(data, batch_size=8, num_workers=int(pinned), pin_memory=pinned)
    times, before = [], time.perf_counter_ns()
    for (batch,) in loader:
        optimizer.zero_grad()
        loss = net(batch.to(DEVICE, non_blocking=pinned)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        now = time.perf_counter_ns()
        times.append(now - before)
        before = now
    size = steps // QUARTERS
    quarters = [sorted(times[place * size : (place + 1) * size])[size // 2] for place in range(QUARTERS)]
    print(json.dumps({"quarters_ns": quarters, "steps": steps, "loss": round(loss.item(), 6)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["pinned"])
