"""A file for pprof, and for the services that read its format, e.g. Grafana Pyroscope and Polar Signals.

Format: github.com/google/pprof, proto/profile.proto, compressed by gzip. There are two values: ``samples`` of all
sampled threads, and ``step_time`` of the inspected step; pprof shows one of them at a time (-sample_index). Each sample
has the thread as a label.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from perfwrap.exporters.export_model import NANOSECONDS, Destination, Exported, StackFrame, StackProfile
from perfwrap.exporters.viewer_file import demand_profiles, write_file

TAKES = frozenset({"out"})
FILE = "stacks.pb.gz"
KINDS = (("samples", "count"), ("step_time", "nanoseconds"))
"""Name and unit of both values."""
THREAD = "thread"
VARINT, BYTES = 0, 2
"""Types of fields in protocol buffers."""


def export(run: Exported, where: Destination) -> list[str]:
    """Write the file."""
    profiles = demand_profiles(run)
    line = write_file(run, where, FILE, gzip.compress(encoded(run, profiles), mtime=0))
    index = " -sample_index=step_time" if profiles[0].unit == NANOSECONDS else ""
    return [line, f"go tool pprof -http=:{index} {line.removeprefix('Written: ')}"]


def encoded(run: Exported, profiles: Iterable[StackProfile]) -> bytes:
    """Return the message ``Profile``."""
    texts: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    locations: dict[StackFrame, int] = {}

    def text(word: str) -> int:
        return texts.setdefault(word, len(texts))

    def place(frame: StackFrame) -> int:
        functions.setdefault((frame.function, frame.file), len(functions) + 1)
        return locations.setdefault(frame, len(locations) + 1)

    message = bytearray()
    for kind in KINDS:
        message += _part(1, _number(1, text(kind[0])) + _number(2, text(kind[1])))
    used = tuple(profiles)
    for profile in used:
        label = _part(3, _number(1, text(THREAD)) + _number(2, text(profile.name)))
        for frames, weight in profile.stacks:
            values = (0, weight) if profile.unit == NANOSECONDS else (weight, 0)
            # The innermost frame comes first.
            places = [place(frame) for frame in reversed(frames)]
            message += _part(2, _packed(1, places) + _packed(2, values) + label)
    for frame, number in locations.items():
        function = functions[frame.function, frame.file]
        message += _part(4, _number(1, number) + _part(4, _number(1, function) + _number(2, frame.line)))
    for (name, file), number in functions.items():
        words = _number(2, text(name)) + _number(3, text(name)) + _number(4, text(file))
        message += _part(5, _number(1, number) + words)
    message += _number(9, run.begin_ns) + _number(10, run.end_ns - run.begin_ns)
    shown = KINDS[any(profile.unit == NANOSECONDS for profile in used)][0]
    message += _number(13, text(f"perfwrap: {run.sentence}")) + _number(14, text(shown))
    for word in texts:
        message += _part(6, word.encode("utf-8", "replace"))
    return bytes(message)


def _varint(value: int) -> bytes:
    """Return a number that is not negative, seven bits in a byte."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    """Return a field with a number; nothing for 0, which is the default."""
    return _varint(field << 3 | VARINT) + _varint(value) if value else b""


def _part(field: int, content: bytes) -> bytes:
    """Return a field with a message or a text."""
    return _varint(field << 3 | BYTES) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    """Return a field with several numbers."""
    return _part(field, b"".join(map(_varint, values)))
