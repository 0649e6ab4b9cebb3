"""Decodes one journal file into columns; the format is specified in the recorder's ``journal_format.py`` (FORMAT 1).

All that a crash can leave is read as far as possible: truncated files, slots that were claimed and never finished,
texts with missing pieces, invalid bytes. What was skipped is counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from perfwrap.journal_format import DESCRIBE, FORMAT, HEADER, INSTANTS, MAGIC, PIECE_BYTES, SPANS, SUM

SLOT = np.dtype(
    [
        ("start", "<i8"),
        ("duration", "<i8"),
        ("value", "<i8"),
        ("name", "<u4"),
        ("thread", "<u2"),
        ("kind", "<u2"),
    ]
)
"""One record; ``HEADER`` is in the first slot."""

Records: TypeAlias = NDArray[np.void]
RESERVED = 7
"""Slots after the header that are reserved for records at the end; unused ones are not counted as lost."""
LARGEST_FILE = 4 << 30
"""Bytes; the budget of a process is 256 MiB unless the user sets another one."""
LONGEST_NS = 10 * 365 * 86400 * 10**9
"""Ten years: a time that differs from the header's by more is damaged."""

KINDS = np.array(
    sorted(
        [*DESCRIBE.values(), *SPANS.values(), *(kind | SUM for kind in SPANS.values()), *INSTANTS.values()]
    )
)
TIMED = np.array(sorted([*SPANS.values(), DESCRIBE["SAMPLE"], DESCRIBE["MARK"], *INSTANTS.values()]))
"""Kinds whose start is a time of the run."""


class Unreadable(Exception):
    """The file is not a journal that this perfwrap can read; the text says why."""


class NewerFormat(Unreadable):
    """The file was written by a newer perfwrap."""


class Header(Struct, frozen=True):
    """Who wrote a journal, and when it was opened on both clocks."""

    host: str
    pid: int
    start_ticks: str
    sequence: str
    monotonic: int
    wall: int


class JournalFile(Struct, frozen=True):
    """One journal: its records without torn and unknown ones, its texts, and what was skipped."""

    header: Header
    records: Records
    """In the order of the file."""
    texts: dict[int, str]
    torn: int
    """Slots that were claimed but never finished."""
    size_bytes: int
    """Bytes that were written, without the unused rest of the last segment."""
    notes: tuple[str, ...] = field(default=())


def read_header(path: Path) -> Header:
    """Return the journal's header; Unreadable if it is not a journal, NewerFormat if it is newer."""
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if not head.strip(b"\0"):
        raise Unreadable("is empty: its writer ended before it wrote anything")
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise Unreadable("is not a journal")
    _, number, pid, monotonic, wall = HEADER.unpack(head)
    if number > FORMAT:
        raise NewerFormat(f"has format {number}, this perfwrap reads {FORMAT}")
    host, named_pid, start_ticks, sequence = _names(path)
    return Header(host, pid or named_pid, start_ticks, sequence, monotonic, wall)


def read_file(path: Path) -> JournalFile:
    """Return the journal's content; raises what ``read_header`` raises."""
    header = read_header(path)
    if path.stat().st_size > LARGEST_FILE:
        raise Unreadable(f"is larger than {LARGEST_FILE >> 30} GiB, the maximum size of a journal")
    whole = path.stat().st_size % SLOT.itemsize == 0
    slots: Records = np.fromfile(path, dtype=SLOT, offset=HEADER.size)
    slots = slots[: used_slots(slots)]
    finished = slots["kind"] != 0
    torn = int(np.count_nonzero(~finished[RESERVED:]))
    records, notes = sane(slots if finished.all() else slots[finished], header.monotonic)
    texts, holes = _texts(records[records["kind"] == DESCRIBE["TEXT"]])
    if holes:
        notes.append(f"{holes} of its texts have missing pieces")
    if not whole:
        notes.append("its last record is truncated")
    return JournalFile(header, records, texts, torn, (slots.size + 1) * SLOT.itemsize, tuple(notes))


def _names(path: Path) -> tuple[str, int, str, str]:
    """Return host, pid, start and sequence from the file's name; zeros if it was renamed."""
    parts = path.stem.rsplit("-", 3)
    if len(parts) == 4 and parts[1].isdecimal():
        return parts[0], int(parts[1]), parts[2], parts[3]
    return "unknown", 0, "0", path.stem


def used_slots(slots: Records) -> int:
    """Return how many slots are before the unused rest of the last segment."""
    # In blocks from the end: the rest is short, and a mask over all slots would read all of them.
    end = slots.size
    while end > 0:
        begin = max(0, end - 65536)
        words = slots[begin:end].view("<u8").reshape(-1, 4)
        touched = np.flatnonzero(words.any(axis=1))
        if touched.size:
            return begin + int(touched[-1]) + 1
        end = begin
    return 0


def sane(records: Records, opened: int) -> tuple[Records, list[str]]:
    """Return the valid records, and notes about the others."""
    kinds = records["kind"]
    known = np.isin(kinds, KINDS, kind="table")
    far = np.abs(records["start"] - opened) > LONGEST_NS
    bad_duration = (records["duration"] < 0) | (records["duration"] > LONGEST_NS)
    damaged = np.isin(kinds, TIMED, kind="table") & (far | bad_duration)
    notes = []
    if not known.all():
        notes.append(f"{int((~known).sum())} records have kinds that this perfwrap does not know")
    if damaged.any():
        notes.append(f"{int(damaged.sum())} records have impossible times")
    keep = known & ~damaged
    return (records if keep.all() else records[keep]), notes


def gather_texts(pieces: Records, gathered: dict[int, dict[int, bytes]]) -> None:
    """Add the pieces of texts in TEXT records to those gathered before: id -> place -> piece."""
    payload = np.stack([pieces["start"], pieces["duration"], pieces["value"]], axis=1).astype("<i8").tobytes()
    for place, (number, piece) in enumerate(
        zip(pieces["name"].tolist(), pieces["thread"].tolist(), strict=True)
    ):
        gathered.setdefault(number, {})[piece] = payload[PIECE_BYTES * place : PIECE_BYTES * (place + 1)]


def join_text(found: dict[int, bytes]) -> str:
    """Return the text of these pieces; each gap becomes one question mark."""
    encoded, expected = [], 0
    for place in sorted(found):
        if place != expected:
            encoded.append(b"?")
        encoded.append(found[place])
        expected = place + 1
    return b"".join(encoded).rstrip(b"\0").decode("utf-8", "replace")


def _texts(pieces: Records) -> tuple[dict[int, str], int]:
    """Return the texts by id, and how many have a missing piece."""
    gathered: dict[int, dict[int, bytes]] = {}
    gather_texts(pieces, gathered)
    holes = sum(len(found) != max(found) + 1 for found in gathered.values())
    return {number: join_text(found) for number, found in gathered.items()}, holes
