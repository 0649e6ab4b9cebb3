"""Runs a program on the queued device under perfwrap, with a profiler that records what the device truly did.

PyTorch's profiler records devices through plugins in C++ (CUPTI for CUDA), which a device in Python cannot have. So
this takes the place of ``torch_profiler.Recording`` in the recorder of its process: all else is the recorder's own, the
choice of steps, the file and the notes. ``queued_profiler.py PROGRAM ARGUMENTS...``
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

LAUNCH_NS = 3_000
"""How long a launching call is said to take."""
COPIES = {"h2d": "Memcpy HtoD (Pageable -> Device)", "d2h": "Memcpy DtoH (Device -> Pageable)"}


class Recording:
    """One recording, with the methods of ``torch_profiler.Recording``."""

    open: Recording | None = None
    stop_ns = 0

    def __init__(self, details: tuple[str, ...], only_kernels: bool = False) -> None:
        assert only_kernels, "this device has no operations of the host"
        self.results: list[dict[str, Any]] | None = None
        self.since = 0

    def start(self) -> None:
        """Begin."""
        self.since = time.monotonic_ns()
        Recording.open = self

    def mark_step(self, number: int | None) -> None:
        """Do nothing, as a record of only kernels."""

    def add_rank(self) -> None:
        """Do nothing: there is one process."""

    def stop(self, wanted: bool = True, is_last: bool = True) -> None:
        """Wait for the device and keep what it did since the beginning."""
        torch.queued.synchronize()  # type: ignore[attr-defined]
        Recording.open = None
        self.results = []
        for number, work in enumerate(torch.queued.done):  # type: ignore[attr-defined]
            if work.launched >= self.since:
                self.results += _events(number, work)

    def export(self, folder: str, name: str) -> bool:
        """Write the file as Kineto does."""
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Queued device"}]}
        base = time.time_ns() - time.monotonic_ns()
        path.write_text(json.dumps({**header, "baseTimeNanoseconds": base, "traceEvents": self.results}))
        return True


def _events(number: int, work: Any) -> list[dict[str, Any]]:
    """Return the events of a piece of work and of the call that launched it; times are microseconds."""
    is_copy = work.name in COPIES
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaMemcpyAsync" if is_copy else "cudaLaunchKernel",
        "pid": os.getpid(),
        "tid": threading.get_native_id(),
        "ts": work.launched / 1e3,
        "dur": LAUNCH_NS / 1e3,
        "args": {"correlation": number},
    }
    done = {
        "ph": "X",
        "cat": "gpu_memcpy" if is_copy else "kernel",
        "name": COPIES.get(work.name, work.name),
        "pid": 0,
        "tid": 7,
        "ts": work.start / 1e3,
        "dur": (work.end - work.start) / 1e3,
        "args": {"correlation": number, "device": 0, "stream": 7},
    }
    return [call, done]


def main() -> None:
    """Put the profiler in place and run the program."""
    profiler = sys.modules["perfwrap_recorder.gpu.torch_profiler"]
    profiler.Recording = Recording  # type: ignore[attr-defined]
    profiler.has_started_gpu = lambda: True  # type: ignore[attr-defined]
    profiler.is_enabled = lambda: Recording.open is not None  # type: ignore[attr-defined]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
