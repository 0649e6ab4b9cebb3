"""The program that gpu_check.py records to check the blame for a GPU's idle time: a loop with one planted cause.

It has no reference to perfwrap. ``planted_idle.py CAUSE`` trains with work of a known time on the device, so the idle
time of a step is the rest of its period. It prints a line of JSON: the cause, the steps, their time, and the device's
busy time in them without copies, all without the first steps; and when the host was at the planted cause. On CUDA the
busy time is that of its waiting kernels, by events of its own; another device must have a function ``launch(name,
seconds)`` and a list ``done`` of what it did (name, launched, start, end), in ns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
STEPS, WARM_UP = 120, 40
WORK_MS = 4.0
"""Device time of a forward pass; a backward pass has the same."""
IDLE_MS = 8.0
"""The planted cause takes this much longer than the device's work, or follows a wait for it."""
LAUNCHES = 40
"""Small pieces of work of a forward pass whose launches take longer than they do."""
SMALL_MS, LAUNCH_MS = 0.1, 0.4
COPIED_BYTES = 64_000_000 if DEVICE in ("cuda", "openreg") else 8_000_000
COPIES = ("h2d", "d2h", "d2d")

spent_ms = [0.0]
planted: list[tuple[int, int]] = []
"""When the host was at the planted cause, in ns."""
timed: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
"""Events around the large pieces of work: the GPU's clock may differ from that of the calibration."""


def work(milliseconds: float) -> None:
    """Launch work that takes the device so long."""
    if DEVICE == "cuda" and milliseconds < 1:
        spent_ms[0] += milliseconds
        torch.cuda._sleep(int(milliseconds * CYCLES_PER_MS))
    elif DEVICE == "cuda":
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        torch.cuda._sleep(int(milliseconds * CYCLES_PER_MS))
        pair[1].record()
        timed.append(pair)
    else:
        getattr(torch, DEVICE).launch("work", milliseconds / 1e3)


def calibrate() -> float:
    """Return the cycles of a millisecond of the device's waiting kernel; 0 for another device."""
    if DEVICE != "cuda":
        return 0.0
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10_000_000)
    first.record()
    torch.cuda._sleep(100_000_000)
    last.record()
    last.synchronize()
    return 1e8 / first.elapsed_time(last)


class Work(torch.autograd.Function):
    """A forward and a backward pass of known device time."""

    @staticmethod
    def forward(context: object, x: torch.Tensor, milliseconds: float) -> torch.Tensor:
        """Launch the forward pass."""
        work(milliseconds)
        return x * 1

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Launch the backward pass."""
        work(WORK_MS)
        return gradient, None


class Net(nn.Module):
    """A model whose forward pass is one large or many small pieces of work."""

    def __init__(self, launches: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.launches = launches

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Launch the work."""
        begun = time.monotonic_ns()
        for _ in range(self.launches):
            work(SMALL_MS)
            time.sleep(LAUNCH_MS / 1e3)
        if self.launches:
            planted.append((begun, time.monotonic_ns()))
        return Work.apply(x * self.weight, 0.0 if self.launches else WORK_MS)  # type: ignore[no-any-return]


class Batches(Dataset):  # type: ignore[type-arg]
    """Batches that take the host some time."""

    def __init__(self, milliseconds: float, copied: int) -> None:
        self.milliseconds = milliseconds
        self.copied = torch.zeros(copied // 4)

    def __len__(self) -> int:
        """Return the number of batches."""
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        """Make a batch."""
        if self.milliseconds:
            wait(self.milliseconds)
        return self.copied


def wait(milliseconds: float) -> None:
    """Keep the host from launching anything for this time: the planted cause."""
    begun = time.monotonic_ns()
    time.sleep(milliseconds / 1e3)
    planted.append((begun, time.monotonic_ns()))


def read(loss: torch.Tensor) -> float:
    """Read a value after the device's work.

    PyTorch's test device openreg reads it without waiting, and waits for all its streams one after the other: that
    takes a while, also when the device has no work left.
    """
    if DEVICE == "openreg":
        begun = time.monotonic_ns()
        torch.accelerator.synchronize()
        planted.append((begun, time.monotonic_ns()))
    return loss.item()


def main(cause: str) -> None:
    """Train with one cause of idle time."""
    busy_ms = 2 * WORK_MS
    net = Net(LAUNCHES if cause == "dispatch" else 0).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=False)
    batches = Batches(
        busy_ms + IDLE_MS if cause == "data" else 0, COPIED_BYTES if cause == "transfer" else 16 * 4
    )
    x = torch.ones(4, 4, device=DEVICE)
    causes: dict[str, Callable[[torch.Tensor], object]] = {
        "python": lambda loss: wait(busy_ms + IDLE_MS),
        "sync": lambda loss: (read(loss), wait(IDLE_MS)),
    }
    act = causes.get(cause, lambda loss: None)
    begun = 0
    for step, batch in enumerate(DataLoader(batches, batch_size=None)):
        if step == WARM_UP:
            begun, spent_ms[0] = time.monotonic_ns(), 0.0
            timed.clear()
        if cause == "transfer":
            began = time.monotonic_ns()
            copied = batch.to(DEVICE)  # from pageable memory: waits
            planted.append((began, time.monotonic_ns()))
            del copied  # to free it takes time, too, but is no copy
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        act(loss)
    ended = time.monotonic_ns()
    if timed:
        torch.cuda.synchronize()
    busy_ns = round(1e6 * (spent_ms[0] + sum(first.elapsed_time(last) for first, last in timed)))
    done = getattr(getattr(torch, DEVICE), "done", None)
    if done is not None:
        kept = [(start, end) for name, _, start, end in list(done) if name not in COPIES]
        busy_ns = sum(max(0, min(end, ended) - max(start, begun)) for start, end in kept)
    print(
        json.dumps(
            {
                "cause": cause,
                "steps": STEPS - WARM_UP,
                "begun_ns": begun,
                "ended_ns": ended,
                "busy_ns": busy_ns,
                "planted_ns": planted,
            }
        )
    )


CAUSES = ("data", "python", "sync", "dispatch", "transfer")
CYCLES_PER_MS = calibrate()

if __name__ == "__main__":
    main(sys.argv[1])
