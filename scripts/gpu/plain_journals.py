"""Reads what gpu_check.py needs of the journals of a run, with numpy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, HEADER, SPANS
from perfwrap.journal_words import Words, read_words

RECORD = np.dtype(
    [
        ("start", "<i8"),
        ("duration", "<i8"),
        ("value", "<i8"),
        ("name", "<u4"),
        ("thread", "<u2"),
        ("kind", "<u2"),
    ]
)
"""A record, as ``journal_format.py`` specifies it."""
Records = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Journal:
    """One journal: its records in the order of their start, and its texts, facts and coverage."""

    records: Records
    words: Words

    def of(self, kind: str) -> Records:
        """Return the records of a kind."""
        number = {**DESCRIBE, **SPANS}[kind]
        return self.records[self.records["kind"] == number]

    def series(self, entity: str, metric: str) -> tuple[Records, Records]:
        """Return times and values of a sampled series; empty if it was not sampled."""
        samples = self.of("SAMPLE")
        wanted = FIELD_SEPARATOR.join((entity, metric))
        numbers = [
            number for number in np.unique(samples["name"]).tolist() if self.words.text(number) == wanted
        ]
        rows = samples[np.isin(samples["name"], numbers)]
        return rows["start"], rows["value"].copy().view("<f8")


def read(folder: Path) -> Iterator[Journal]:
    """Yield the journals of a run, the largest first."""
    for path in sorted((folder / "journal").glob("*.pwj"), key=lambda path: -path.stat().st_size):
        data = path.read_bytes()[HEADER.size :]
        records = np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], dtype=RECORD)
        records = records[records["kind"] > 0]
        yield Journal(records[np.argsort(records["start"], kind="stable")], read_words(path))


def phase_ns(folder: Path, phase: str, last: int) -> int:
    """Return the time between perfwrap's events of a phase on the GPU, the last ones together."""
    for journal in read(folder):
        spans = journal.of("GPU")
        found = spans[spans["value"] % 256 == SPANS[phase.upper()]]
        if found.size:
            return int(found["duration"][-last:].sum())
    return 0


def window_notes(folder: Path) -> list[str]:
    """Return what the recorder noted of windows of torch.profiler, of all processes."""
    return [note for journal in read(folder) for note in journal.words.notes("torch_profiler")]


def failures(folder: Path) -> list[str]:
    """Return the probes that failed, each with the reason."""
    return [
        f"{what}: {note}"
        for journal in read(folder)
        for what, _, note in journal.words.coverage
        if note.startswith("failed")
    ]
