"""A second, independent reader of journals, and sidecars started as the launcher starts them."""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from perfwrap.monitors.monitor_journal import JournalWriter

PATIENCE_SECONDS = 200
"""How long a condition may take on a machine that does ten other things; only failures take so long."""

RECORD = struct.Struct("<qqqIHH")
KINDS = {2: "clock", 4: "facts", 5: "marks", 6: "samples", 7: "coverage", 8: "lost", 9: "thin", 10: "end"}


def wait_for(condition: Callable[[], object], what: str) -> object:
    """Return the first true value of the condition; fail when there is none in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        select.select([], [], [], 0.01)
    return value


@dataclass
class Content:
    """What a journal says, read by the letter of its specification."""

    header: tuple[bytes, int, int, int, int]
    size: int
    facts: dict[str, str] = field(default_factory=dict)
    marks: list[tuple[str, str]] = field(default_factory=list)
    samples: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    coverage: list[tuple[str, int, int, str]] = field(default_factory=list)
    lost: list[tuple[str, int]] = field(default_factory=list)
    thin: list[tuple[str, int]] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    history: list[tuple[str, str]] = field(default_factory=list)
    """All facts in order."""

    def notes(self, what: str) -> list[str]:
        return [note for name, _, _, note in self.coverage if name == what]

    def values(self, entity: str, metric: str) -> list[float]:
        return [value for _, value in self.samples[entity, metric]]


def read(path: Path) -> Content:
    """Read a journal."""
    data = path.read_bytes()
    assert len(data) % 32 == 0
    content = Content(struct.unpack_from("<8sIIqq", data), len(data))
    slots = [RECORD.unpack_from(data, place) for place in range(32, len(data), 32)]
    pieces: dict[int, dict[int, bytes]] = defaultdict(dict)
    for start, duration, value, name, thread, kind in slots:
        if kind == 1:
            pieces[name][thread] = struct.pack("<qqq", start, duration, value)
    texts = {0: ""}
    for name, found in pieces.items():
        texts[name] = b"".join(found[at] for at in range(len(found))).rstrip(b"\0").decode()
    for slot in slots:
        if slot[-1] in KINDS:
            _take(content, KINDS[slot[-1]], texts, *slot[:4])
        else:
            assert slot[-1] in (0, 1), f"a monitor wrote a record of kind {slot[-1]}"
    return content


def _take(
    content: Content, kind: str, texts: dict[int, str], start: int, duration: int, value: int, name: int
) -> None:
    if kind == "facts":
        content.facts[texts[name]] = texts[value]
        content.history.append((texts[name], texts[value]))
    elif kind == "marks":
        content.marks.append((texts[name], texts[value]))
    elif kind == "samples":
        entity, metric = texts[name].split("\x1f")
        content.samples[entity, metric].append((start, struct.unpack("<d", struct.pack("<q", value))[0]))
    elif kind == "coverage":
        content.coverage.append((texts[name], start, duration, texts[value]))
    elif kind in ("lost", "thin"):
        getattr(content, kind).append((texts[name], value))
    elif kind == "clock":
        content.clock.append((start, value))
    else:
        content.end.append(start)


class Book:
    """A journal to give to a monitor, and its content so far."""

    def __init__(self, folder: Path) -> None:
        self.writer = JournalWriter(folder, "testhost")

    def read(self) -> Content:
        self.writer.flush()
        return read(self.writer.path)


@pytest.fixture(scope="session")
def read_journal() -> Callable[[Path], Content]:
    """The independent reader."""
    return read


@pytest.fixture(scope="session", name="wait_for")
def _wait_for() -> Callable[[Callable[[], object], str], object]:
    """Wait for a condition, with a limit."""
    return wait_for


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """An open journal."""
    folder = tmp_path / "book"
    folder.mkdir()
    return Book(folder)


class Sidecar:
    """A sidecar of this test, which plays the launcher."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None, **settings: float) -> None:
        self.folder = folder
        for name in ("journal", "starts", "inject"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "perfwrap.monitors.sidecar", str(folder), str(os.getpid())]
        command.append(json.dumps(settings))
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )

    def watch(self, pid: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"child {pid}\n".encode())
        self.process.stdin.flush()

    def content(self) -> Content | None:
        # For a moment after it was made a journal is an empty file.
        journals = [path for path in (self.folder / "journal").glob("*.pwj") if path.stat().st_size]
        return read(journals[0]) if journals else None

    def wait_until(self, condition: Callable[[Content], object], what: str) -> Content:
        """Wait until the journal says something; return all that it says."""

        def met() -> Content | None:
            assert self.process.poll() is None, self.process.communicate()
            content = self.content()
            return content if content is not None and condition(content) else None

        found = wait_for(met, what)
        assert isinstance(found, Content)
        return found

    def finish(self) -> Content:
        """Let it end, and return its journal; it must have been silent."""
        said = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert said == (b"", b"")
        assert self.process.returncode == 0
        content = self.content()
        assert content is not None
        return content


@pytest.fixture
def start_sidecar(tmp_path: Path) -> Iterator[Callable[..., Sidecar]]:
    """Start sidecars that do not outlive the test."""
    started: list[Sidecar] = []

    def start(environment: dict[str, str] | None = None, **settings: float) -> Sidecar:
        started.append(Sidecar(tmp_path / f"run{len(started)}", environment, **settings))
        return started[-1]

    yield start
    for sidecar in started:
        sidecar.process.kill()
        sidecar.process.wait()
        for pipe in (sidecar.process.stdin, sidecar.process.stdout, sidecar.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def run_python() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start Pythons that run some code and do not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, *flags: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, *flags, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
