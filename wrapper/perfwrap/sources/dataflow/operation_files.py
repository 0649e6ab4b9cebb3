"""Reads the dataflow windows of a run, ``tools/operations-<host>-<pid>-<number>.json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain

import msgspec

from perfwrap.run_folder import TOOLS, RunFolder
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.operation_window import NEW, STEPS, VIEW, WRITTEN, OperationWindow

FORMAT = 1
NAME = re.compile(r"operations-(?P<host>.+)-(?P<pid>\d{1,10})-(?P<number>\d{1,3})\.json", re.ASCII)
NO_TEXT = re.compile(rb"(?<!\\ud[89ab][0-9a-f]{2})\\udc[89a-f][0-9a-f]")
"""How JSON writes a byte of a file name that is not UTF-8."""
HOWS = (NEW, WRITTEN, VIEW)
MAX_BYTES = 1 << 30
MAX_WINDOWS = 64
MAX_NS = 24 * 3600 * 1_000_000_000
"""No time in a window is longer."""


def add_all(
    folder: RunFolder,
    builder: TimelineBuilder,
    moment: Callable[[str, int], int],
    shown: Callable[[str], str] = str,
) -> None:
    """Add the windows of a run.

    ``moment`` returns a host's time on the clock of the run, ``shown`` the name in the run of a host that a file names.
    """
    paths = sorted((folder.path / TOOLS).glob("operations-*.json"))
    for path in paths[:MAX_WINDOWS]:
        name = NAME.fullmatch(path.name)
        if name is None:
            continue
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ValueError("it is too large")
            window = _decode(path.read_bytes())
            _check(window)
        except (*UNFORESEEN, msgspec.DecodeError) as error:
            builder.warn(f"The dataflow window {path.name} cannot be read ({error}); it was skipped.")
            continue
        host = shown(name["host"])
        process = builder.latest_process(host, int(name["pid"]))
        opened = moment(host, window.opened)
        thread = builder.known_thread(process, window.thread)
        builder.add_operations(msgspec.structs.replace(window, process=process, thread=thread, opened=opened))


def _decode(content: bytes) -> OperationWindow:
    """Return a window; bytes in the names of files that are no text become question marks."""
    try:
        return msgspec.json.decode(content, type=OperationWindow)
    except msgspec.DecodeError:
        readable = NO_TEXT.sub(b"?", content)
        if readable == content:
            raise
        return msgspec.json.decode(readable, type=OperationWindow)


def _check(window: OperationWindow) -> None:
    """Raise ValueError if the window is of another format, or if a number in it refers to nothing."""
    if window.format != FORMAT:
        raise ValueError(f"its format is {window.format}, this perfwrap reads {FORMAT}")
    count = len(window.operations)
    firsts = window.first_operations
    if (
        len(window.ends) != STEPS
        or len(firsts) != STEPS + 1
        or firsts != sorted(firsts)
        or firsts[0] < 0
        or firsts[-1] > count
    ):
        raise ValueError("its steps are damaged")
    values, operations = len(window.value_storage), window.operations
    _demand(chain.from_iterable(each.reads[::2] for each in operations), values)
    _demand(chain.from_iterable(each.reads[1::2] for each in operations), len(window.geometries))
    _demand(chain.from_iterable(each.writes[::3] for each in operations), values)
    _demand(chain.from_iterable(each.writes[1::3] for each in operations), len(window.geometries))
    _demand(chain.from_iterable(each.writes[2::3] for each in operations), len(HOWS))
    _demand((each.function for each in operations), len(window.functions))
    _demand((each.inside for each in operations), len(window.stacks), -1)
    _demand((each.outside for each in operations), len(window.stacks), -1)
    _demand((each.module for each in operations), len(window.modules), -1)
    _demand((each.first_step for each in window.storages), STEPS)
    _demand(window.value_storage, len(window.storages))
    _demand(window.value_operation, count, -1)
    _demand((storage for storage, _ in window.alive), len(window.storages))
    _demand((value for _, value in window.alive), values)
    _demand(window.unowned, len(window.storages))
    _demand((number for number, _ in window.gpu), count)
    _demand(window.nodes.values(), count)
    _demand(window.sorts, count)
    if len(window.value_operation) != values or not window.bare:
        raise ValueError("its values are damaged")
    if any(len(each.reads) % 2 or len(each.writes) % 3 for each in operations):
        raise ValueError("its operations are damaged")
    if any(
        len(each.shape) != len(each.stride) or min(each.shape, default=0) < 0 for each in window.geometries
    ):
        raise ValueError("its geometries are damaged")
    times = (
        *([window.opened // MAX_NS, *window.ends, *window.bare], (each.start for each in operations)),
        *((each.duration for each in operations), (took for _, took in window.gpu)),
    )
    # Two threads may run operations at the same time: then the gap between them is negative.
    gaps = (abs(each.gap) for each in operations)
    if any(not 0 <= ns < MAX_NS for ns in chain(*times, gaps)):
        raise ValueError("its times are damaged")


def _demand(numbers: Iterable[int], end: int, least: int = 0) -> None:
    """Raise ValueError if a number is not below ``end``, or below ``least``."""
    if any(not least <= number < end for number in numbers):
        raise ValueError("a number in it refers to nothing")
