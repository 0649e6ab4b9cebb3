"""Running programs with the recorder inside, and reading the journals that they leave."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, HEADER, INSTANTS, RECORD, SPANS, SUM

from .warm_python import WarmPython

INJECT = Path(__file__).resolve().parents[3] / "inject"
KIND_NAMES = {number: name for group in (DESCRIBE, SPANS, INSTANTS) for name, number in group.items()}

PREAMBLE = f"""
import os, sys
sys.path.insert(0, {str(INJECT)!r})
from perfwrap_recorder import clock, journal_format
from perfwrap_recorder.journal import journal, lifecycle
from perfwrap_recorder.program import source_lines
class Settings:
    run_dir, host, budget_bytes, nvtx = sys.argv[1], "host", int(sys.argv[2]), False
def open_journal():
    lifecycle.open_current(Settings)
    os.register_at_fork(after_in_child=lifecycle.begin_in_child)
def let_feeders_end():
    # The last to hold a queue's semaphore, such a thread may be stopped between removing it and telling the
    # resource tracker, which then warns on stderr; torch waits for none of them.
    import threading
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread": thread.join(60)
"""


@dataclass
class Record:
    """One record with its texts looked up."""

    kind: str
    start: int
    duration: int
    value: int
    name: str
    thread: int
    place: int

    @property
    def label(self) -> str:
        """The first field of the name."""
        return self.name.split(FIELD_SEPARATOR)[0]

    @property
    def line(self) -> tuple[str, int, str] | None:
        """File name, line and function of a label that has them."""
        fields = self.name.split(FIELD_SEPARATOR)
        return (Path(fields[1]).name, int(fields[2]), fields[3]) if len(fields) > 3 else None


@dataclass
class Journal:
    """One journal, read record by record."""

    path: Path
    header: tuple[bytes, int, int, int, int]
    records: list[Record]
    texts: dict[int, str] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[Record]:
        """Return the records of these kinds, in the order of their start."""
        return sorted((found for found in self.records if found.kind in kinds), key=lambda found: found.start)

    @property
    def facts(self) -> dict[str, str]:
        """The facts, the last one where several have the same key."""
        return {found.name: self.texts[found.value] for found in self.records if found.kind == "FACT"}

    def totals(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return count and duration of all spans of each kind and name, summed ones included."""
        counts: Counter[tuple[str, str]] = Counter()
        durations: Counter[tuple[str, str]] = Counter()
        for found in self.records:
            if found.kind in SPANS:
                counts[found.kind, found.name] += 1
                durations[found.kind, found.name] += found.duration
            elif found.kind.startswith("SUM "):
                counts[found.kind[4:], found.name] += found.value
                durations[found.kind[4:], found.name] += found.duration
        return {key: (count, durations[key]) for key, count in counts.items()}


def read_journal(path: Path) -> Journal:
    """Read a journal as its specification says."""
    data = path.read_bytes()
    assert len(data) % RECORD.size == 0
    slots = list(RECORD.iter_unpack(data))
    pieces: dict[int, dict[int, bytes]] = {}
    for start, duration, value, name, thread, kind in slots[1:]:
        if kind == DESCRIBE["TEXT"]:
            pieces.setdefault(name, {})[thread] = struct.pack("<qqq", start, duration, value)
    texts = {
        name: b"".join(found[number] for number in sorted(found)).rstrip(b"\0").decode("utf-8", "replace")
        for name, found in pieces.items()
    }
    records = []
    for place, (start, duration, value, name, thread, kind) in enumerate(slots[1:], start=1):
        if kind == 0 or kind == DESCRIBE["TEXT"]:
            continue
        word = KIND_NAMES[kind & ~SUM]
        records.append(
            Record(
                f"SUM {word}" if kind & SUM else word,
                start,
                duration,
                value,
                texts.get(name, ""),
                thread,
                place,
            )
        )
    return Journal(path, HEADER.unpack(data[: HEADER.size]), records, texts)


@dataclass
class Finished:
    """A program that has ended, and what it left."""

    returncode: int
    stdout: str
    stderr: str
    run_dir: Path
    journals: list[Journal]
    """The largest first."""

    @property
    def journal(self) -> Journal:
        """The only journal."""
        (found,) = self.journals
        return found


class Runner:
    """Runs a program in a process of its own: a new Python, or a copy of one that has imported PyTorch."""

    def __init__(self, folder: Path, warm: WarmPython | None = None) -> None:
        self.folder = folder
        self.warm = warm

    def __call__(
        self, program: str, python: str = sys.executable, budget: int = 8 << 20, check: bool = True, **options
    ) -> Finished:
        """Run ``program`` after the preamble; it reads sys.argv[1] as the run folder.

        ``fresh`` has a new Python run it in any case, and so has every option of ``subprocess.run``.
        """
        (self.folder / "journal").mkdir(parents=True, exist_ok=True)
        script = self.folder / "program.py"
        script.write_text(PREAMBLE + program)
        if not options.pop("fresh", False) and self.warm is not None and not options:
            done = self.warm.run(script, str(self.folder), str(budget), cwd=self.folder)
            return self.read(done, check)
        return self.command([python, str(script), str(self.folder), str(budget)], check, **options)

    def command(self, words: list[str], check: bool = True, **options) -> Finished:
        """Run any command in the folder."""
        options.setdefault("timeout", 240)
        options.setdefault("cwd", self.folder)
        return self.read(subprocess.run(words, capture_output=True, text=True, **options), check)

    def read(self, done: subprocess.CompletedProcess[str], check: bool = True) -> Finished:
        """Read what a program has left in the folder; ``check``: it ended well and printed no error."""
        journals = sorted(
            map(read_journal, (self.folder / "journal").glob("*.pwj")), key=lambda j: -len(j.records)
        )
        finished = Finished(done.returncode, done.stdout, done.stderr, self.folder, journals)
        if check:
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
        return finished


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """A Python that has imported PyTorch, whose copies run programs."""
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    python = WarmPython()
    yield python
    python.close()


@pytest.fixture
def run_bare(warm_python: WarmPython, tmp_path: Path) -> Callable[..., str]:
    """Run a program without the recorder, in a copy of the Python that the recorded one is a copy of."""

    def run_bare(program: str, *arguments: str) -> str:
        script = tmp_path / "bare.py"
        script.write_text(program)
        done = warm_python.run(script, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_bare


@pytest.fixture(scope="module")
def make_warm_run(warm_python: WarmPython, tmp_path_factory: pytest.TempPathFactory):
    """Make runners whose programs find PyTorch imported, each with a folder of its own."""
    return lambda: Runner(tmp_path_factory.mktemp("run"), warm_python)


@pytest.fixture(scope="module")
def make_run(tmp_path_factory: pytest.TempPathFactory):
    """Make runners, each with a folder of its own."""
    return lambda: Runner(tmp_path_factory.mktemp("run"))


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """Run a program with the recorder inside."""
    return Runner(tmp_path)


@pytest.fixture
def warm_run(warm_python: WarmPython, tmp_path: Path) -> Runner:
    """Run a program with the recorder inside, that finds PyTorch imported."""
    return Runner(tmp_path, warm_python)
