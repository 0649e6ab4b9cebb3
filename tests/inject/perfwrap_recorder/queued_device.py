"""A device with real asynchrony, which PyTorch knows as ``queued``: a thread per stream does what is launched, later.

Its work takes time and computes nothing: tensors have sizes, types and gradients, but no values, and ``item`` returns
0. What each stream did, and when, is in ``done``: the truth that the recorder's figures are compared with. Like the
module of any device that is no part of PyTorch, this one is registered as ``torch.queued``. If its folder is on
``sys.path`` with the entry point that ``make_autoload`` writes, ``import torch`` finds it, as it finds torch_npu.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

NAME = "queued"
OP_SECONDS = 50e-6
"""The time of an operation that torch launches."""
BYTES_PER_SECOND = 1e9
"""The speed of copies between the host and the device."""
SWITCH_SECONDS = 1e-4
TRUTH = "QUEUED_DEVICE_TRUTH"
"""Variable with the path of the file for what the device did, as JSON; it is written when the program ends."""


class Done(NamedTuple):
    """A piece of work: its name, its launch and its time by CLOCK_MONOTONIC, in ns."""

    name: str
    launched: int
    start: int
    end: int


done: list[Done] = []
allocated: dict[str, int] = {"allocated_bytes.all.current": 0, "num_device_alloc": 0}
_threads: dict[int, SimpleQueue[Any]] = {}
_current: list[Stream] = []


class Stream:
    """A queue of work, and the thread that does it; equal to another of the same number."""

    def __init__(self, stream_id: int = 0) -> None:
        self.stream_id = stream_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def put(self, work: Any) -> None:
        """Queue (name, launched, seconds), or an event."""
        if self.stream_id not in _threads:
            _threads[self.stream_id] = SimpleQueue()
            threading.Thread(target=_work, args=(_threads[self.stream_id],), daemon=True).start()
        _threads[self.stream_id].put(work)

    def synchronize(self) -> None:
        """Wait for all that was queued."""
        event = Event()
        event.record(self)
        event.synchronize()


class Event:
    """A moment in a stream; reached when all that was queued before it is done."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.reached_ns = 0
        self._reached = threading.Event()

    def record(self, stream: Stream | None = None) -> None:
        """Queue this event, again if it was queued before."""
        self._reached = threading.Event()
        (stream or current_stream()).put((self, self._reached))

    def query(self) -> bool:
        """Return whether it was reached."""
        return self._reached.is_set()

    def elapsed_time(self, other: Event) -> float:
        """Return the milliseconds from this event to another."""
        return (other.reached_ns - self.reached_ns) / 1e6

    def synchronize(self) -> None:
        """Wait until it is reached."""
        self._reached.wait()


def _work(queue: SimpleQueue[Any]) -> None:
    """Do what is queued: to compute is to sleep."""
    while True:
        found = queue.get()
        if isinstance(found[0], Event):
            event, reached = found
            event.reached_ns = time.monotonic_ns()
            reached.set()
            continue
        name, launched, seconds = found
        start = time.monotonic_ns()
        time.sleep(seconds)
        done.append(Done(name, launched, start, time.monotonic_ns()))


def launch(name: str, seconds: float) -> None:
    """Queue work of a name on the current stream."""
    current_stream().put((name, time.monotonic_ns(), seconds))


def current_stream(index: int = 0) -> Stream:
    """Return the stream on which work is launched."""
    return _current[-1] if _current else Stream()


def set_stream(stream: Stream) -> None:
    """Launch on this stream from now on."""
    _current[:] = [stream]


def synchronize(device: Any = None) -> None:
    """Wait for all streams."""
    for number in list(_threads):
        Stream(number).synchronize()


def is_initialized() -> bool:
    """Return whether anything was launched."""
    return bool(_threads)


def is_available() -> bool:
    """Return True: there is one device."""
    return True


def device_count() -> int:
    """Return 1."""
    return 1


def current_device() -> int:
    """Return the number of the only device."""
    return 0


def get_device_name(index: int = 0) -> str:
    """Return what the device is called."""
    return "Queued device"


def memory_stats(index: int = 0) -> dict[str, int]:
    """Return the counters of the allocator, flat, as torch.npu does."""
    return allocated


def empty_cache() -> None:
    """Do nothing: there is no cache."""


def manual_seed_all(seed: int) -> None:
    """Do nothing: there are no random numbers."""


def _is_in_bad_fork() -> bool:
    return False


def _make(size: Any, *more: Any, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    made: torch.Tensor = torch._C._acc.create_empty_tensor(list(size), dtype or torch.get_default_dtype())
    allocated["allocated_bytes.all.current"] += made.numel() * made.element_size()
    allocated["num_device_alloc"] += 1
    return made


def _copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    sizes = source.numel() * source.element_size()
    kind = "h2d" if source.device.type == "cpu" else "d2h" if target.device.type == "cpu" else "d2d"
    launch(kind, sizes / BYTES_PER_SECOND)
    if kind == "d2h" or (kind == "h2d" and not non_blocking):
        _wait()
    if kind == "d2h":
        torch.Tensor.zero_(target)
    return target


def _item(tensor: torch.Tensor) -> float:
    _wait()
    return 0.0


def _wait() -> None:
    """Wait for the current stream, as a device does in C++: without a call of its Python functions."""
    event = Event()
    event.record()
    event._reached.wait()


def _compute(operation: Any, *arguments: Any, **options: Any) -> Any:
    """Launch an operation; the sizes of its results are those of PyTorch's meta device."""
    from torch.utils._pytree import tree_map

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        return torch.device("meta") if isinstance(value, torch.device) else value

    def back(value: Any) -> Any:
        return _make(value.size(), dtype=value.dtype) if isinstance(value, torch.Tensor) else value

    returns = operation._schema.returns
    if not any(each.alias_info is not None and not each.alias_info.is_write for each in returns):
        launch(operation._schema.name, OP_SECONDS)
    found = operation(*tree_map(to_meta, arguments), **tree_map(to_meta, options))
    if returns and returns[0].alias_info is not None and returns[0].alias_info.is_write:
        return options["out"] if "out" in options else arguments[0]
    return tree_map(back, found)


def register() -> None:
    """Register the device and its operations: the entry point for ``import torch``."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=sys.modules[__name__])
    own = torch.library.Library("aten", "IMPL", "PrivateUse1")
    own.impl("empty.memory_format", _make)
    own.impl("empty_strided", _make)
    own.impl("_copy_from", _copy)
    own.impl("_local_scalar_dense", _item)
    for name in ("set_.source_Storage", "set_.source_Storage_storage_offset"):
        own.impl(name, lambda tensor, *arguments: tensor)
    others = torch.library.Library("_", "IMPL")
    others.fallback(_compute, "PrivateUse1")
    _kept.extend((own, others))
    # The threads of the device must get Python's lock soon when the program computes in Python.
    sys.setswitchinterval(SWITCH_SECONDS)
    atexit.register(_write_truth)


_kept: list[Any] = []


def _write_truth() -> None:
    path = os.environ.get(TRUTH)
    if path and done:
        synchronize()
        Path(path).write_text(json.dumps(done))


def make_autoload(folder: Path) -> None:
    """Write into a folder what makes ``import torch`` find this device, if the folder is on ``sys.path``."""
    (folder / f"{NAME}_device.py").symlink_to(__file__)
    described = folder / f"{NAME}_device-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}_device\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[torch.backends]\n{NAME} = {NAME}_device:register\n")
