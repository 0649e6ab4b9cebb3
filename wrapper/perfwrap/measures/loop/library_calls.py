"""Which library functions the samples below a line of the program are in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

FRAME = re.compile(r"(?:^|;)(?P<function>[^;]*?) \((?P<file>[^;]*):(?P<line>\d+)\)(?=;|$)")
PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+)")
STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/([^/]+)")
COMPILED = re.compile(r"/([a-z2-7]{2})/c\1[a-z2-7]{49}\.py$")
"""A file that torch's Inductor writes."""
MAIN_SHARE = 0.5
"""Share of the samples in libraries that a function on the way down must hold."""
ONLY_SHARE = 0.8
"""Share of a function's samples from which the function that it calls is named instead."""
MIN_SHARE = 0.1
"""Share of the samples in libraries from which an inner function is named."""
MAX_INNER = 2
GENERIC = frozenset(
    ("decorate_context", "_wrapped_call_impl", "_call_impl", "wrapper", "wrapped", "inner", "<lambda>")
    + ("__call__", "<listcomp>", "<genexpr>", "<dictcomp>", "_fn", "__torch_function__", "__next__")
)
"""Functions that only call another one; their names say nothing."""

MODULE_CALL = "torch/nn/modules/module.py"
DERIVES = "/torch/autograd/"

Step = tuple[str, str]
"""File and function of a frame."""


class LibraryCall(Struct, frozen=True):
    """A function of a library with its number of samples."""

    package: str
    """The top-level package or standard module."""
    function: str
    count: int
    derives: bool = False
    """Whether it is the part of torch that computes derivatives (``torch.autograd.grad``)."""


class LibraryTime(Struct, frozen=True):
    """The samples in libraries that a line of the program calls.

    ``main`` is the deepest function that at least half of them are in, None if they are spread; ``inner`` are the
    functions below it with most of them.
    """

    count: int
    main: LibraryCall | None
    inner: tuple[LibraryCall, ...]
    in_modules: int = 0
    """Samples in modules that the line calls."""


def library_time(stacks: Sequence[tuple[str, int]], file: str, line: int) -> LibraryTime | None:
    """Return the library functions below a line, from stacks with their weights; None if there are none."""
    paths = [(path, weight) for stack, weight in stacks if (path := _below(stack, file, line))]
    whole = sum(weight for _, weight in paths)
    if not whole:
        return None
    prefix = _descend(paths, (), MAIN_SHARE * whole)
    children: Counter[Step] = Counter()
    for path, weight in paths:
        if path[: len(prefix)] == prefix and len(path) > len(prefix):
            children[path[len(prefix)]] += weight
    inner = []
    for child, weight in children.most_common(MAX_INNER):
        if weight >= MIN_SHARE * whole:
            named = _named(_descend(paths, (*prefix, child), ONLY_SHARE * weight), weight)
            inner += [named] if named else []
    held = sum(weight for path, weight in paths if path[: len(prefix)] == prefix)
    in_modules = sum(weight for path, weight in paths if any(file.endswith(MODULE_CALL) for file, _ in path))
    return LibraryTime(whole, _named(prefix, held) if prefix else None, tuple(inner), in_modules)


def common_lines(stacks: Sequence[tuple[str, int]]) -> list[tuple[str, str, int, int]]:
    """Return the lines of the program inside modules that at least half of the stacks pass, outermost first.

    Each is file, function, line, and the number of samples; none if the stacks are spread, or are in no module.
    """
    paths = [(_inside_modules(stack), weight) for stack, weight in stacks]
    whole = sum(weight for _, weight in paths)
    prefix: tuple[tuple[str, str, int], ...] = ()
    found: list[tuple[str, str, int, int]] = []
    while True:
        children: Counter[tuple[str, str, int]] = Counter()
        for path, weight in paths:
            if path[: len(prefix)] == prefix and len(path) > len(prefix):
                children[path[len(prefix)]] += weight
        child, weight = children.most_common(1)[0] if children else (("", "", 0), 0)
        if not weight or weight < MAIN_SHARE * whole:
            return found
        prefix = (*prefix, child)
        found.append((*child, weight))


def common_caller(stacks: Sequence[tuple[str, int]], file: str) -> tuple[str, str, int] | None:
    """Return the frame that calls the program's innermost one, if it is the same in nearly all stacks.

    ``file`` is that of the innermost frame of the program. The frame is its file, function and line.
    """
    found: Counter[tuple[str, str, int]] = Counter()
    for stack, weight in stacks:
        frames = [(found["file"], found["function"], int(found["line"])) for found in FRAME.finditer(stack)]
        own = [frame for frame in frames if is_program(frame[0])]
        if len(own) > 1 and own[-1][0] == file:
            found[own[-2]] += weight
    frame, weight = found.most_common(1)[0] if found else (("", "", 0), 0)
    return frame if weight and weight >= ONLY_SHARE * sum(weight for _, weight in stacks) else None


def caller_of_modules(stack: str) -> tuple[str, str, int] | None:
    """Return the program's frame that calls the outermost module of a stack: file, function and line.

    None if the stack is in no module.
    """
    frames = [(found["file"], found["function"], int(found["line"])) for found in FRAME.finditer(stack)]
    first = next((at for at, frame in enumerate(frames) if frame[0].endswith(MODULE_CALL)), 0)
    return next((frame for frame in reversed(frames[:first]) if is_program(frame[0])), None)


def _inside_modules(stack: str) -> tuple[tuple[str, str, int], ...]:
    """Return the program's own frames inside the outermost module call: file, function and line."""
    frames = [(found["file"], found["function"], int(found["line"])) for found in FRAME.finditer(stack)]
    first = next((at for at, frame in enumerate(frames) if frame[0].endswith(MODULE_CALL)), len(frames))
    return tuple(frame for frame in frames[first:] if is_program(frame[0]))


def is_program(file: str) -> bool:
    """Return whether a file is the program's own."""
    return not file.startswith("<") and not any(kind.search(file) for kind in (PACKAGE, STANDARD, COMPILED))


def _below(stack: str, file: str, line: int) -> tuple[Step, ...]:
    """Return the library frames below the innermost frame at that line."""
    frames = [(found["function"], found["file"], int(found["line"])) for found in FRAME.finditer(stack)]
    own = max((at for at, frame in enumerate(frames) if frame[1:] == (file, line)), default=None)
    if own is None:
        return ()
    return tuple((place, name) for name, place, _ in frames[own + 1 :] if not place.startswith("<"))


def _descend(
    paths: Sequence[tuple[tuple[Step, ...], int]], prefix: tuple[Step, ...], least: float
) -> tuple[Step, ...]:
    """Return the prefix, extended by functions that hold at least so many samples."""
    while True:
        children: Counter[Step] = Counter()
        for path, weight in paths:
            if path[: len(prefix)] == prefix and len(path) > len(prefix):
                children[path[len(prefix)]] += weight
        if not children:
            return prefix
        child, weight = children.most_common(1)[0]
        if weight < least:
            return prefix
        prefix = (*prefix, child)


def _named(path: Sequence[Step], count: int) -> LibraryCall | None:
    """Return the innermost function whose name says something."""
    for file, function in reversed(path):
        if function.rpartition(".")[2] not in GENERIC:
            return LibraryCall(_package(file), function, count, DERIVES in file)
    return None


def _package(file: str) -> str:
    """Return the top-level package of a file; ``torch.compile`` for code that it wrote."""
    if COMPILED.search(file):
        return "torch.compile"
    found = PACKAGE.search(file) or STANDARD.search(file)
    return (found[1] if found else file.rpartition("/")[2]).removesuffix(".py")
