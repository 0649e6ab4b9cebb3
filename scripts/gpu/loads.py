"""The program that scripts/gpu_check.py records to check the GPU monitors with known loads.

It has no reference to perfwrap. Prints a line of JSON for each load: its name, the GPU's uuid, and its begin and end by
CLOCK_MONOTONIC. ``loads.py SECONDS`` runs each load for this time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

SIZE = 8192
"""Rows and columns of the matrices: one multiplication takes milliseconds, so launching costs nothing."""
BURST_SECONDS = 0.05
"""The duration of the bursts of work, and of the pauses between them, in the load with gaps."""
GIBIBYTE = 1 << 30
SPIN_CYCLES = 20_000_000

Load = Callable[[], None]


def idle() -> Load:
    """Do nothing."""
    return lambda: time.sleep(0.1)


def one_thread() -> Load:
    """Keep a kernel of one single thread running: a full duty cycle, and nearly the whole GPU unused."""
    return lambda: torch.cuda._sleep(SPIN_CYCLES)


def copies() -> Load:
    """Copy from pinned host memory, over the link and with no kernel."""
    host = torch.empty(GIBIBYTE // 4, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")

    def work() -> None:
        device.copy_(host, non_blocking=True)

    return work


def memory() -> Load:
    """Stream through the GPU's own memory with next to no arithmetic."""
    source = torch.ones(GIBIBYTE // 4, device="cuda")
    target = torch.empty_like(source)

    def work() -> None:
        torch.add(source, 1.0, out=target)

    return work


def multiply(kind: torch.dtype) -> Load:
    """Multiply large matrices: bfloat16 on the tensor cores, float32 (without TF32) on the other units."""
    left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=kind) for _ in range(2))
    product = torch.empty_like(left)

    def work() -> None:
        torch.mm(left, right, out=product)

    return work


def gaps() -> Load:
    """Multiply in bfloat16 for half of the time, in bursts."""
    multiplication = multiply(torch.bfloat16)

    def work() -> None:
        end = time.monotonic() + BURST_SECONDS
        while time.monotonic() < end:
            multiplication()
            torch.cuda.synchronize()
        time.sleep(BURST_SECONDS)

    return work


LOADS: dict[str, Callable[[], Load]] = {
    "idle": idle,
    "one_thread": one_thread,
    "copies": copies,
    "memory": memory,
    "fp32": lambda: multiply(torch.float32),
    "bf16": lambda: multiply(torch.bfloat16),
    "gaps": gaps,
}


def main() -> None:
    """Run the loads one after the other."""
    torch.backends.cuda.matmul.allow_tf32 = False
    # Older versions of PyTorch do not have it.
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    for name, prepare in LOADS.items():
        work = prepare()
        work()
        torch.cuda.synchronize()
        begin = time.monotonic_ns()
        while time.monotonic_ns() < begin + float(sys.argv[1]) * 1e9:
            # A few at once keep the GPU busy while the host reads the clock.
            for _ in range(1 if name in ("idle", "gaps") else 4):
                work()
            torch.cuda.synchronize()
        record = {"load": name, "uuid": uuid, "begin_ns": begin, "end_ns": time.monotonic_ns()}
        print(json.dumps(record), flush=True)
        del work
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
