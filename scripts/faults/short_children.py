"""A program of faults.py that starts ``short_children.py COUNT`` short-lived children, one after the other.

A third of them are not Python, a third are Python without torch, and a third are forks that make a training step.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make one step."""
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def main(count: int) -> None:
    """Start them, and print how they ended."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    codes = []
    for number in range(count // 3):
        codes.append(subprocess.run(["/bin/sh", "-c", f"exit {number % 3}"]).returncode)
        codes.append(subprocess.run([sys.executable, "-c", f"raise SystemExit({number % 5})"]).returncode)
        child = os.fork()
        if not child:
            step(model, optimizer)
            os._exit(number % 7)
        codes.append(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
        if number % 50 == 0:
            print("step", number + 1, sum(codes), flush=True)
    print("children", len(codes), sum(codes))


if __name__ == "__main__":
    main(int(sys.argv[1]))
