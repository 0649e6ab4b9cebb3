"""Converts the frames of a sampled stack to the columns of ``stacks``: the user's line, and the running operation.

The recorder's sampler does the same inside the process (``source_lines.py``, ``wrapping.py``); from outside, only
the names of files and functions are known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

HIDDEN, INSTALLED, USERS = range(3)

PACKAGES = re.compile(r"/(?:site|dist)-packages/")
STANDARD_LIBRARY = re.compile(r"/lib(?:64)?/python3\.\d+/")
COMPILED = re.compile(r"/([a-z2-7]{2})/c\1[a-z2-7]{49}\.py$")
"""A file that torch's Inductor writes."""
SHORT = re.compile(r"[A-Za-z_]\w*(?=/|\.pyx?$)")
"""The first part of a file's name that py-spy has shortened to begin with its package."""
SCRIPT_WITHOUT_SUFFIX = re.compile(r"/bin/[^/.]+$")

EXPORTS = ("key_averages", "total_average", "events", "export_chrome_trace", "export_stacks")
"""Functions by which a program reads the recording of its torch.profiler."""

PHASES = (
    ("torch/utils/data/_utils/worker.py", ("_worker_loop",), "worker"),
    ("torch/utils/data/_utils/fetch.py", ("fetch",), "fetch"),
    ("torch/utils/data/_utils/pin_memory.py", ("pin_memory",), "pin"),
    ("torch/utils/data/dataloader.py", ("__next__",), "data"),
    ("torch/utils/data/dataloader.py", ("__iter__", "_get_iterator"), "loader_start"),
    ("torch/nn/modules/module.py", ("_wrapped_call_impl", "_call_impl"), "forward"),
    ("torch/autograd/__init__.py", ("backward", "grad"), "backward"),
    ("torch/_tensor.py", ("backward",), "backward"),
    ("torch/utils/checkpoint.py", ("recompute_fn", "backward"), "recompute"),
    ("torch/optim/optimizer.py", ("wrapper",), "optimizer"),
    ("torch/optim/optimizer.py", ("zero_grad",), "zero_grad"),
    ("torch/nn/utils/clip_grad.py", ("clip_grad_norm_", "clip_grad_value_"), "clip"),
    ("torch/serialization.py", ("save",), "save"),
    ("torch/serialization.py", ("load",), "load"),
    (
        "torch/profiler/profiler.py",
        ("step", "start", "stop", "start_trace", "stop_trace", *EXPORTS),
        "profiler",
    ),
    ("torch/autograd/profiler.py", ("__enter__", "__exit__", "table", *EXPORTS), "profiler"),
    ("torch/autograd/profiler_util.py", ("table", *EXPORTS), "profiler"),
)
"""Files of torch, functions in them, and the recorder's name of the operation that runs in these functions."""
MAKING = ("fetch", "pin")
"""The phases in which a batch is made."""
BY_FUNCTION = {(file, name): operation for file, names, operation in PHASES for name in names}
RECORDER = "<perfwrap"
"""In the file of each function that the recorder adds to a program; it says nothing about the program."""
CALLS_AS_CALLER = "call_from"
"""The recorder's function that calls a method of torch through a frame with the file, line and name of its caller."""
PASSED_ON = ("__torch_function__", "__torch_dispatch__")
"""Methods of tensor subclasses through which all operations pass: the line that calls the operation says more."""
NAMING = "torch/autograd/profiler.py"
"""The file of ``record_function``, and of the profiler that a program may use."""
OPTIMIZERS, WRAPPER = "torch/optim/", "torch/optim/optimizer.py"
"""The files of torch's optimizers, and the one in which their common wrapper around ``step`` is."""
WAITING = ("multiprocessing/queues.py", "get")
"""In a worker outside of any batch: it waits for a request."""


class Frame(NamedTuple):
    """One frame; ``file`` and ``line`` are "" and 0 if unknown."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        """Return the frame as in the text of a stack."""
        name = self.function.replace(";", ",")
        return f"{name} ({self.file}:{self.line})" if self.file else name


def make_frame(function: object, file: object, line: object) -> Frame:
    """Return a frame from the values in a file, which may have any type."""
    known = isinstance(line, int) and 0 < line < 1 << 31
    return Frame(str(function), file if isinstance(file, str) else "", line if known else 0)  # type: ignore[arg-type]


def append(rows: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    """Append a row to columns that are still lists."""
    for name, value in row.items():
        rows[name].append(value)


def of_program(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames of the program itself: without the recorder's, and those that repeat their caller."""
    program: list[Frame] = []
    repeats = False
    for frame in frames:
        if RECORDER in frame.file:
            repeats = bool(program) and _short(frame) == CALLS_AS_CALLER
            continue
        if not repeats or frame[:2] != program[-1][:2]:
            program.append(frame)
        repeats = False
    return program


def columns(frames: Sequence[Frame]) -> dict[str, Any]:
    """Return stack, operation, file, line and function of frames in order from the outermost to the innermost."""
    frames = of_program(frames)
    begin = _worker_loop(frames)
    own = frames[begin:]
    users = [frame for frame in reversed(own) if sort_of(frame.file) == USERS]
    place = next((frame for frame in users if _short(frame) not in PASSED_ON), next(iter(users), None))
    if place is None and not begin:
        place = next((frame for frame in reversed(own) if sort_of(frame.file) == INSTALLED), None)
    return {
        "stack": ";".join(map(str, frames)),
        "operation": _operation(own),
        "file": place.file if place else None,
        "line": place.line if place else None,
        "function": place.function if place else None,
    }


def sort_of(file: str) -> int:
    """Return whose code a file is: hidden for torch and Python, installed for other packages, else the user's."""
    if not file or file.startswith("<") or not _is_python(file):
        return HIDDEN
    parts = PACKAGES.split(file)
    if len(parts) > 1:
        return HIDDEN if parts[-1].startswith("torch/") else INSTALLED
    if STANDARD_LIBRARY.search(file) or COMPILED.search(file):
        return HIDDEN
    first = SHORT.match(file)
    if first and (first[0] in sys.stdlib_module_names or file.startswith("torch/")):
        return HIDDEN
    return USERS


def _is_python(file: str) -> bool:
    return file.endswith((".py", ".pyx", ".ipynb")) or not (
        SCRIPT_WITHOUT_SUFFIX.search(file) or "." in file.rpartition("/")[2]
    )


def _worker_loop(frames: Sequence[Frame]) -> int:
    """Return the frame at which a DataLoader worker begins: the frames before are from its parent's fork."""
    return max((at for at, frame in enumerate(frames) if _phase(frame) == "worker"), default=0)


def _operation(frames: Sequence[Frame]) -> str | None:
    """Return the innermost running operation, None in the user's own Python.

    What happens while a batch is made is part of that: torchvision's transforms are modules.
    """
    phases = [
        phase
        for at in reversed(range(len(frames)))
        if (phase := _phase(frames[at])) is not None and not _marks_torchs_work(frames, at)
    ]
    found = next((phase for phase in phases if phase in MAKING), phases[0] if phases else None)
    if found == "optimizer" and _in_closure(frames):
        return None
    if found == "forward" and any(_phase(frame) == "recompute" for frame in frames):
        return "recompute"  # in a backward pass, by activation checkpointing
    if found != "worker":
        return found
    waits = any(_ends_with(frame, WAITING[0]) and _short(frame) == WAITING[1] for frame in frames)
    return "idle" if waits else "worker"


def _marks_torchs_work(frames: Sequence[Frame], at: int) -> bool:
    """Return whether a frame is that of a name which torch gives to its own work: its optimizers name their steps.

    Up to Python 3.10, frames have no class, and who calls it decides.
    """
    if not _ends_with(frames[at], NAMING):
        return False
    caller = frames[at - 1].file if at else ""
    return frames[at].function.startswith("record_function.") or OPTIMIZERS in caller


def _in_closure(frames: Sequence[Frame]) -> bool:
    """Return whether one of torch's optimizers runs a function that the program has given to ``step``."""
    inner = False
    for frame in reversed(frames):
        if sort_of(frame.file) != HIDDEN:
            inner = True
        elif inner and OPTIMIZERS in frame.file and not _ends_with(frame, WRAPPER):
            return True
        elif _phase(frame) == "optimizer":
            return False
    return False


def _phase(frame: Frame) -> str | None:
    place = frame.file.rfind("torch/")
    return BY_FUNCTION.get((frame.file[place:], _short(frame))) if place >= 0 else None


def _short(frame: Frame) -> str:
    """Return the function's own name, without its class."""
    return frame.function.rpartition(".")[2]


def _ends_with(frame: Frame, path: str) -> bool:
    return frame.file.endswith(path)
