"""The meaning of the words in a PyTorch trace: its categories, and the names of functions and ranges.

Kineto's categories are listed in its ``ActivityType.cpp``; those of PyTorch 1.8 to 1.11 were capitalised. AMD's and
NVIDIA's runtimes name the same calls ``hip…`` and ``cuda…``.
"""

from __future__ import annotations

import re
import sys

KINDS = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "range",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "runtime": "call",
    "driver": "call",
    "hip_runtime": "call",
    "xpu_runtime": "call",
    "xpu_driver": "call",
    "mtia_runtime": "call",
    "privateuse1_runtime": "call",
    "privateuse1_driver": "call",
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "memset",
    "memset": "memset",
    "gpu_user_annotation": "gpu_range",
    "cuda_sync": "gpu_sync",
    "cuda_event": "gpu_sync",
    "overhead": "overhead",
    "python_function": "python",
    "trace": "window",
}
OTHER_KIND = "range"
"""The kind of an event by its category in lower case, and that of all others."""

LONGEST_TEXT = 8192
"""Characters; names of kernels can have some thousands."""
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")

ON_GPU = ("kernel", "copy", "memset", "gpu_range", "gpu_sync")
"""Kinds that are on a stream's track."""

STEP = re.compile(
    r"(?:profiler|train(?:ing)?)?[ _.-]?(?:step|iter|iteration|batch)[ _:#.=-]*(\d{1,9})$", re.IGNORECASE
)
"""Names that the profiler and programs give the ranges around a step."""
LOADER = re.compile(r"enumerate\(DataLoader\)#(\w+)")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#(.+?)(?:\.(?:step|zero_grad))?$")
ENGINE = re.compile(r"autograd::engine::|torch::autograd::|.*Backward\d*$")
PHASE = re.compile(r"\W*(?:\w+\.)?(forward|backward)\W*$", re.IGNORECASE)
COLLECTIVE = re.compile(r"(?:nccl|rccl|gloo|mpi|ucc|c10d)::?(.+)", re.IGNORECASE)
READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::pin_memory")
WAITS = re.compile(r"(?:cuda|hip|cu)(?:Stream|Device|Event|Ctx)Synchronize")
DIRECTION = re.compile(
    r"(?:Memcpy |Copy|\b)(H|D|P|A|Host|Device|Peer|Array)to(H|D|P|A|Host|Device|Peer|Array)\b", re.IGNORECASE
)
PYTHON_FUNCTION = re.compile(r"(.+)\((\d+)\): (.+)$", re.DOTALL)
BACKWARD_CALL = re.compile(r"torch[/\\](?:_tensor|autograd[/\\]__init__)\.py\(\d+\): backward$")
MODULE = re.compile(r"nn\.Module: (.+)$")


def plain_text(value: object) -> str:
    """Return a text that is safe to print and to store: without control characters and lone surrogates."""
    text = str(value)[:LONGEST_TEXT]
    if text.isprintable():
        return text
    return CONTROLS.sub(" ", text).encode("utf-8", errors="replace").decode()


def kind_of(category: object) -> str:
    """Return the kind of a category's events."""
    return KINDS.get(str(category or "").lower(), OTHER_KIND)


def step_number(name: str) -> int | None:
    """Return the number of the step that a range represents, None if it is not a step."""
    found = STEP.match(name)
    return int(found[1]) if found else None


def is_collective(name: str) -> bool:
    """Return whether a range or function is a collective of several processes."""
    return COLLECTIVE.match(name) is not None


def operation_of(kind: str, name: str) -> tuple[str, str] | None:
    """Return the recorder's operation of a function, call or range, and its name; None if it has none."""
    if kind == "call":
        return ("sync", name) if WAITS.match(name) else None
    if kind == "python":
        module = MODULE.match(name)
        if module:
            return "forward", module[1]
        return ("backward", "Tensor.backward") if BACKWARD_CALL.match(name) else None
    if kind not in ("op", "range"):
        return None
    if found := LOADER.match(name):
        return "data", found[1]
    if found := OPTIMIZER.match(name):
        return ("optimizer" if found[1] == "step" else "zero_grad"), found[2]
    if kind == "op":
        return ("sync", name) if name in READS else ("transfer", name) if name in COPIES else None
    found = PHASE.match(name)
    return (found[1].lower(), name.strip("# ")) if found else None


def is_autograd(name: str) -> bool:
    """Return whether a function belongs to the backward pass."""
    return ENGINE.match(name) is not None


def copy_direction(name: str) -> str:
    """Return h2d, d2h, d2d, p2p or h2h for the name of a copy; ``copy`` if unknown."""
    found = DIRECTION.search(name)
    if found is None:
        return "copy"
    ends = [end[0].lower().replace("a", "d") for end in found.groups()]
    return "p2p" if "p" in ends else "2".join(ends)


def pinned(name: str) -> bool:
    """Return whether the host memory of a copy is pinned."""
    return "pinned" in name.lower()


def python_place(name: str) -> tuple[str, int, str] | None:
    """Return file, line and name of a function of the program, None for those of libraries.

    The profiler removes the folders of ``sys.path``, so a library's file begins with its package.
    """
    found = PYTHON_FUNCTION.match(name)
    if found is None or len(found[2]) > 9:
        return None
    file = found[1]
    package = file.replace("\\", "/").split("/")[0].removesuffix(".py")
    foreign = package in sys.stdlib_module_names or package == "torch" or file.startswith("<")
    if foreign or "-packages/" in file or "/lib/python" in file:
        return None
    return file, int(found[2]), found[3]


def is_own_function(name: str) -> bool:
    """Return whether a Python function is the program's, or a torch function that shows what the program does."""
    return operation_of("python", name) is not None or python_place(name) is not None
