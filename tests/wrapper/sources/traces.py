"""Small traces as torch.profiler writes them, for the tests of their readers."""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from perfwrap.sources.kineto import kineto_trace
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

REPOSITORY = Path(__file__).resolve().parents[3]
SAMPLE = REPOSITORY / "tests/samples/kineto/cpu_training.json.gz"
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", REPOSITORY.parent / "shared/data"))

Event = dict[str, Any]


def lasting(category: str, name: str, start: float, duration: float, tid: Any = 7, **args: Any) -> Event:
    """Return an event that lasts, in microseconds, of process 7."""
    pid = 0 if category in ("kernel", "gpu_memcpy", "gpu_memset") else 7
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": args
    }  # fmt: skip


def launched(name: str, start: float, duration: float, number: int, **args: Any) -> Event:
    """Return a kernel on stream 20 of GPU 0."""
    return lasting("kernel", name, start, duration, 20, device=0, stream=20, correlation=number, **args)


def written(path: Path, events: list[Event], packed: bool = False, **header: Any) -> Path:
    """Write a trace and return where it is."""
    text = json.dumps({"schemaVersion": 1, **header, "traceEvents": events, "traceName": "x"}).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


@cache
def read(*paths: Path) -> Timeline:
    """Return the timeline of some traces, read once."""
    builder = TimelineBuilder()
    for path in paths:
        kineto_trace.add(builder, path)
    return builder.build({"imported": []})
