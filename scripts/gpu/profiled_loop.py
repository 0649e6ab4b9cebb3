"""The program that scripts/gpu_check.py records: steps on a GPU that never wait, under torch's own profiler.

It has no reference to perfwrap. ``profiled_loop.py TRACE`` writes the profiler's trace of the last STEPS steps. Before
them it runs steps in which torch raises an error for each synchronisation, so an additional one ends the program.
"""

from __future__ import annotations

import os
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
STEPS = 20
"""Steps of each sort; all are among the recorder's first steps, which are recorded in detail."""
WIDTH, ROWS = 4096, 8192
"""Large enough that every phase takes the GPU far longer than the host takes to launch it."""


def main() -> None:
    """Run the steps."""
    net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    net.to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    batch = torch.randn(ROWS, WIDTH, device=DEVICE)

    def step() -> torch.Tensor:
        with record_function("phase:forward"):
            output = net(batch)
        loss = output.square().mean()
        with record_function("phase:backward"):
            loss.backward()
        with record_function("phase:optimizer"):
            optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(STEPS):
        print(f"{step().item():.4f}")
    if DEVICE == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    for _ in range(STEPS):
        step()
    if DEVICE == "cuda":
        torch.cuda.set_sync_debug_mode("default")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(STEPS):
            loss = step()
        print(f"{loss.item():.4f}")
    profiler.export_chrome_trace(sys.argv[1])


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
