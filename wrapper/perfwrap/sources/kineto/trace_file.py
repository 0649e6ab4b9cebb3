"""Reads a Chrome trace piece by piece: the events of one piece at a time, the rest of the document at the end.

The format is "Trace Event Format" (a list of events, or an object with ``traceEvents``), plain or gzipped. A trace
of a gigabyte is never in memory as a whole: pieces end at the end of an event, and only the fields that the timeline
needs are decoded. Every size is bounded, so that a small file that decompresses to a huge one does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfwrap.sources.unpacked import Damaged, Unpacked

PIECE = 2 << 20
"""Bytes that are decompressed and decoded at once."""
LARGEST_EVENT = 16 << 20
"""Bytes; a file with a longer event is not a trace."""
LARGEST_TRACE = 16 << 30
"""Bytes after decompression; the rest is skipped, with a note."""

EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
LIST = re.compile(rb"\s*\[")
ESCAPED = re.compile(rb"\\.", re.DOTALL)
COUNTER = re.compile(rb'"ph"\s*:\s*"C"')
NO_NUMBER = re.compile(rb"(:\s*)-?(?:inf(?:inity)?|nan)\b", re.IGNORECASE)
LONE_BACKSLASH = re.compile(rb'\\(?!["\\/bfnrtu])')
HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
CONTROL = bytes(32 if code < 32 else code for code in range(256))

OPENS, CLOSES, QUOTE = b"{[", b"}]", ord('"')
STRUCTURE = bytes(code in OPENS + CLOSES + bytes([QUOTE]) for code in range(256))
STEP = np.zeros(256, dtype=np.int8)
STEP[list(OPENS)], STEP[list(CLOSES)] = 1, -1

Positions: TypeAlias = NDArray[np.int32]


NO_JSON = msgspec.Raw(b"")


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that the timeline needs; some writers use texts for numbers."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    size: Any = None
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    memory_device: Any = msgspec.field(default=None, name="Device Id")
    memory_kind: Any = msgspec.field(default=None, name="Device Type")
    name: Any = None
    awaited_call: Any = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    awaited_stream: Any = msgspec.field(default=None, name="wait_on_stream")
    dims: msgspec.Raw = msgspec.field(default=NO_JSON, name="Input Dims")
    old_dims: msgspec.Raw = msgspec.field(default=NO_JSON, name="Input dims")
    """In traces of PyTorch 1.8."""
    types: msgspec.Raw = msgspec.field(default=NO_JSON, name="Input type")


class Event(msgspec.Struct, gc=False):
    """One event; times stay text, because a float cannot hold nanoseconds since 1970."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Arguments | None = None
    values: Any = msgspec.field(default=None, name="values of a counter")
    """The arguments of a counter, whose names depend on the writer; filled in here."""


class Counter(msgspec.Struct, gc=False):
    """The part of an event that is decoded again if there are counters among the events."""

    args: Any = None


@dataclass
class TraceFile:
    """Reads one trace in pieces; after the last piece, the fields describe the file."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    """The fields beside the events."""
    notes: list[str] = field(default_factory=list)
    """Problems, each in one clause."""
    damaged: int = 0
    """Number of events that could not be decoded."""

    def pieces(self) -> Iterator[list[Event]]:
        """Return the events, many at a time; OSError if the file cannot be opened."""
        with Unpacked(self.path) as stream:
            unpacked = _Buffered(stream, self.notes)
            before = _up_to_events(unpacked)
            if before is None:
                self.notes.append("it contains no list of events")
                return
            yield from self._events(unpacked)
            self._read_header(before + b"]" + unpacked.rest())

    def _events(self, unpacked: _Buffered) -> Iterator[list[Event]]:
        """Return the events up to the end of their list, or of the file."""
        while True:
            ends, closed = _event_ends(unpacked.buffer)
            if ends.size:
                yield self._decode(unpacked.take(int(ends[-1]) + 1), ends)
            if closed >= 0:
                unpacked.take(closed - (int(ends[-1]) + 1 if ends.size else 0) + 1)
                return
            if len(unpacked.buffer) > LARGEST_EVENT:
                self.notes.append("one of its events has no end")
                return
            # More at a time while no event ends, so that a long event is not scanned repeatedly.
            if not unpacked.more(PIECE if ends.size else max(PIECE, len(unpacked.buffer) // 2)):
                if not self.notes:
                    self.notes.append("it is truncated")
                return

    def _decode(self, text: bytes, ends: Positions) -> list[Event]:
        """Return the events of one piece; if one is damaged, each is decoded separately."""
        try:
            whole = b"[" + text.lstrip(b", \t\r\n") + b"]"
            events = DECODER.decode(whole)
            if COUNTER.search(whole):
                for event, counter in zip(events, COUNTER_DECODER.decode(whole), strict=True):
                    event.values = counter.args if event.ph == "C" else None
            return events
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return list(self._one_by_one(text, ends))

    def _one_by_one(self, text: bytes, ends: Positions) -> Iterator[Event]:
        """Return the events that can be decoded, if necessary after removing what is not valid JSON."""
        begin = 0
        for end in (ends + 1).tolist():
            event = text[begin:end].lstrip(b", \t\r\n")
            begin = end
            try:
                cleaned = _cleaned(event)
                found = LONE_DECODER.decode(cleaned)
                found.values = (
                    COUNTER_DECODER.decode(b"[" + cleaned + b"]")[0].args if found.ph == "C" else None
                )
                yield found
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.damaged += 1

    def _read_header(self, text: bytes) -> None:
        """Keep the fields beside the events; a list of events has none."""
        try:
            header = msgspec.json.decode(_cleaned(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            header = {key: _loose_value(text, key) for key in ("baseTimeNanoseconds",)}
            if not self.notes:
                self.notes.append("the data after its events are damaged")
        self.header = header if isinstance(header, dict) else {}


class _Buffered:
    """The decompressed bytes of the file that are not yet used."""

    def __init__(self, stream: Unpacked, notes: list[str]) -> None:
        self.buffer = b""
        self._stream, self._notes, self._total = stream, notes, 0

    def more(self, size: int) -> bool:
        """Decompress ``size`` more bytes; False at the end of the file."""
        if self._total >= LARGEST_TRACE:
            self._notes.append(f"only its first {LARGEST_TRACE >> 30} GiB were read")
            return False
        try:
            found = self._stream.read(size)
        except (Damaged, OSError):
            found = b""
            self._notes.append("its compressed data are truncated or damaged")
        self._total += len(found)
        self.buffer += found
        return bool(found)

    def take(self, size: int) -> bytes:
        """Remove and return the first bytes."""
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def rest(self) -> bytes:
        """Return the bytes after the events, up to a maximum size."""
        while len(self.buffer) < LARGEST_EVENT and self.more(PIECE):
            pass
        return self.buffer


DECODER = msgspec.json.Decoder(list[Event])
COUNTER_DECODER = msgspec.json.Decoder(list[Counter])
LONE_DECODER = msgspec.json.Decoder(Event)


def _up_to_events(unpacked: _Buffered) -> bytes | None:
    """Remove and return everything before the events; None if there are none."""
    while unpacked.more(PIECE):
        begins = LIST.match(unpacked.buffer) or EVENTS.search(unpacked.buffer)
        if begins:
            return unpacked.take(begins.end())
        if len(unpacked.buffer) > LARGEST_EVENT:
            break
    return None


def _event_ends(text: bytes) -> tuple[Positions, int]:
    """Return where events end, and where their list ends, -1 if it does not end here."""
    plain = ESCAPED.sub(b"__", text) if b"\\" in text else text
    # Small integers, because in a hostile file every byte can be structure.
    places = np.flatnonzero(np.frombuffer(plain.translate(STRUCTURE), dtype=np.bool_)).astype(np.int32)
    found = np.frombuffer(plain, dtype=np.uint8)[places]
    quotes = found == QUOTE
    outside = ~(quotes | np.logical_xor.accumulate(quotes))
    places, found = places[outside], found[outside]
    depth = np.cumsum(STEP[found], dtype=np.int32)
    over = np.flatnonzero(depth < 0)
    closed = int(places[over[0]]) if over.size else -1
    ends = places[(depth == 0) & (found == ord("}"))]
    return (ends[ends < closed] if closed >= 0 else ends), closed


def _cleaned(text: bytes) -> bytes:
    """Return the text without the invalid JSON of some writers: NaN, single backslashes, raw control characters,
    lone surrogates, bytes of another encoding."""
    text = LONE_BACKSLASH.sub(rb"\\\\", NO_NUMBER.sub(rb"\1null", text.translate(CONTROL)))
    return HALF_CHARACTER.sub(rb"\\ufffd", text).decode("utf-8", errors="replace").encode()


def _loose_value(text: bytes, key: str) -> int | None:
    """Return an integer from a document that is damaged elsewhere."""
    found = re.search(rb'"' + key.encode() + rb'"\s*:\s*(\d{1,19})', text)
    return int(found[1]) if found else None
