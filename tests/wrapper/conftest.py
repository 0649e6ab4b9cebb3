"""Writes small runs in the real binary format, for the tests of the reading half."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import perfwrap
import pytest
from jsonschema import Draft202012Validator
from perfwrap.journal_format import (
    DESCRIBE,
    FIELD_SEPARATOR,
    FORMAT,
    GRAD,
    HEADER,
    INSTANTS,
    LEAD_BITS,
    MAGIC,
    RECORD,
    SPANS,
    SUM,
    TRAINING,
)
from perfwrap.rules import wasted_work
from perfwrap.rules.model import rule_id
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.coverage import WINDOW
from perfwrap.timeline.model import Timeline

from tests.wrapper.drawn_windows import Draw, add_windows

SCHEMA = Draft202012Validator(
    json.loads(
        (Path(perfwrap.__file__).parent / "reports" / "diagnosis.schema.json").read_text(encoding="utf-8")
    )
)
MAX_CHECKED = 50
"""Diagnoses of one test: a property is tried with hundreds."""

NOT_OF_THE_PART = {"gc_pause", "recompilation", "zero_grad_memset", "debug_mode_enabled", "too_many_workers"}
NOT_OF_THE_PART |= {rule_id(rule) for rule in wasted_work.RULES}
"""Rules whose verdict is about another part than the one that they claim."""

PIECE = 24
LONGEST_PIECE = struct.Struct("<24sIHH")


class WrittenJournal:
    """One journal; ``now`` is a clock in nanoseconds that spans move on.

    ``data``, ``forward`` and so on write a span of that length and leave the clock at its end; inside a
    ``with journal.inside("optimizer", …)`` block spans lie inside that span.
    """

    def __init__(self, path: Path, pid: int, opened: int, wall: int, number: int = FORMAT) -> None:
        self.path = path
        self.now = opened
        self.thread_index = 1
        self._texts: dict[str, int] = {}
        self._slots: list[bytes] = [HEADER.pack(MAGIC, number, pid, opened, wall)]

    def text(self, text: str) -> int:
        """Return the id of a text, written at its first use."""
        if text not in self._texts:
            number = self._texts[text] = len(self._texts) + 1
            encoded = text.encode()
            for piece in range(-(-len(encoded) // PIECE) or 1):
                part = encoded[piece * PIECE : (piece + 1) * PIECE]
                self._slots.append(LONGEST_PIECE.pack(part, number, piece, DESCRIBE["TEXT"]))
        return self._texts[text]

    def record(
        self,
        kind: int,
        start: int,
        duration: int = 0,
        value: int = 0,
        name: str = "",
        thread: int | None = None,
    ) -> None:
        """Write one record as it is."""
        number = self.text(name) if name else 0
        index = self.thread_index if thread is None else thread
        self._slots.append(RECORD.pack(start, duration, value, number, index, kind))

    def raw(self, slot: bytes) -> None:
        """Write any bytes."""
        self._slots.append(slot)

    def fact(self, key: str, value: object) -> None:
        """Write a fact."""
        self.record(DESCRIBE["FACT"], self.now, value=self.text(str(value)), name=key, thread=0)

    def name_thread(self, index: int, name: str, native: int) -> None:
        """Write a THREAD record."""
        self.record(DESCRIBE["THREAD"], self.now, value=native, name=name, thread=index)

    def sample(self, entity: str, metric: str, value: float, time: int | None = None) -> None:
        """Write a value at a moment."""
        bits = struct.unpack("<q", struct.pack("<d", value))[0]
        series = entity + FIELD_SEPARATOR + metric
        self.record(DESCRIBE["SAMPLE"], self.now if time is None else time, value=bits, name=series, thread=0)

    def describe(
        self, kind: str, name: str = "", value: int = 0, start: int | None = None, duration: int = 0
    ) -> None:
        """Write a describing record: CLOCK, MARK, COVERAGE, LOST, THIN or END."""
        self.record(DESCRIBE[kind], self.now if start is None else start, duration, value, name, 0)

    def non_finite(self, value: float, name: str = "Tensor.item") -> None:
        """Write that the program read a NaN or an infinity."""
        bits = struct.unpack("<q", struct.pack("<d", value))[0]
        self.record(INSTANTS["NON_FINITE"], self.now, value=bits, name=name)

    def queue(self, ready: float, loader: str = "loader/1") -> None:
        """Write how many batches were ready, and a half more where later ones came first."""
        bits = struct.unpack("<q", struct.pack("<d", ready))[0]
        self.record(INSTANTS["QUEUE"], self.now, value=bits, name=loader)

    def span(self, operation: str, duration: int, name: str = "", value: int = 0, line: str = "") -> None:
        """Write a span from now on; ``line`` is file:line or file:line:function."""
        begin = self.now
        self.now += duration
        self.record(SPANS[operation.upper()], begin, duration, value, _label(name, line))

    @contextmanager
    def inside(self, operation: str, name: str = "", value: int = 0, line: str = "") -> Iterator[None]:
        """Write a span around what is written inside."""
        begin = self.now
        yield
        self.record(SPANS[operation.upper()], begin, self.now - begin, value, _label(name, line))

    def gpu(
        self,
        operation: str,
        start: int,
        duration: int,
        leads: tuple[int, int] = (0, 0),
        stream: int = 9,
        name: str = "",
    ) -> None:
        """Write a GPU span; ``leads`` are the host's at both ends, in microseconds."""
        value = SPANS[operation.upper()] | leads[0] << 8 | leads[1] << (8 + LEAD_BITS)
        self.record(SPANS["GPU"], start, duration, value, name or operation, stream)

    def sum(
        self, operation: str, start: int, count: int, duration: int, name: str = "", line: str = ""
    ) -> None:
        """Write what thinned steps held from ``start`` on."""
        self.record(SPANS[operation.upper()] | SUM, start, duration, count, _label(name, line))

    def python(self, duration: int) -> None:
        """Let time pass in which nothing is recorded."""
        self.now += duration

    def data(self, duration: int = 10, loader: str = "loader/1", batch: int = 32, line: str = "") -> None:
        """Write a wait for a batch."""
        self.span("data", duration, loader, batch, line)

    def forward(
        self, duration: int = 20, name: str = "Net", flags: int = TRAINING | GRAD, line: str = ""
    ) -> None:
        """Write an outermost module call."""
        self.span("forward", duration, name, flags, line)

    def backward(self, duration: int = 30, line: str = "") -> None:
        """Write a backward pass."""
        self.span("backward", duration, "", 0, line)

    def optimizer(self, duration: int = 5, name: str = "SGD#1") -> None:
        """Write an optimizer step."""
        self.span("optimizer", duration, name)

    def step(self, name: str = "SGD#1", loader: str = "loader/1") -> None:
        """Write one ordinary training step of 100 ns."""
        self.data(loader=loader)
        self.python(10)
        self.forward()
        self.python(10)
        self.backward()
        self.python(15)
        self.optimizer(name=name)

    def validate(self, batches: int = 3, loader: str = "loader/2", end: bool = True) -> None:
        """Write a validation over a loader."""
        self.span("loader_start", 5, loader)
        for _ in range(batches):
            self.data(4, loader)
            self.forward(6, flags=0)
            self.span("sync", 2, "Tensor.item", line="train.py:90:evaluate")
        if end:
            self.span("data_end", 1, loader)

    def write(self, cut: int = 0, spare_slots: int = 0) -> Path:
        """Write the file; ``cut`` bytes are missing at its end, or ``spare_slots`` untouched slots follow."""
        content = b"".join(self._slots) + bytes(RECORD.size * spare_slots)
        self.path.write_bytes(content[: len(content) - cut])
        return self.path


class WrittenRun:
    """A run folder that is filled by a test."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        for folder in (self.folder.journal, self.folder.starts):
            folder.mkdir(parents=True)
        self.folder.write_manifest({"command": ["python", "train.py"]})
        self.journals: list[WrittenJournal] = []
        self.step: Draw | None = None
        """Draws the operations of a step, for dataflow windows."""

    def journal(
        self,
        pid: int = 100,
        host: str = "here",
        opened: int = 1_000,
        wall: int = 5_000_000,
        ticks: int = 7,
        sequence: int = 0,
        number: int = FORMAT,
        role: str | None = "main",
        **facts: object,
    ) -> WrittenJournal:
        """Begin a journal in the folder."""
        path = self.folder.journal / f"{host}-{pid}-{ticks}-{sequence}.pwj"
        journal = WrittenJournal(path, pid, opened, wall, number)
        for key, value in {"role": role, **facts}.items():
            if value is not None:
                journal.fact(key, value)
        self.journals.append(journal)
        return journal

    def start(self, pid: int, host: str = "here", **fields: object) -> None:
        """Add a line to the host's start log."""
        known = {
            "event": "start",
            "pid": pid,
            "ppid": 1,
            "start_ticks": 7,
            "monotonic_ns": 500,
            "python": "3.11.7",
            "vector": "sitecustomize",
            "argv": "python\x1ftrain.py",
        }
        with (self.folder.starts / f"{host}.log").open("a") as file:
            file.write("\t".join(str(value) for value in {**known, **fields}.values()) + "\n")

    def read(self) -> Timeline:
        """Write all journals and read the run."""
        for journal in self.journals:
            if not journal.path.exists():
                journal.write()
        timeline = run_journals.read(self.folder)
        return timeline if self.step is None else add_windows(timeline, self.step)


def _label(name: str, line: str) -> str:
    """Return a label from a name and file:line:function."""
    return FIELD_SEPARATOR.join([name, *line.split(":")]) if line else name


def disagreement(diagnosis: Any) -> str:
    """Return how the verdict contradicts the account that the reports show beside it; empty if it does not."""
    from perfwrap import units
    from perfwrap.diagnosis.verdict import BOUND_SHARE, PARTS_OF_KIND
    from perfwrap.rules.model import Scope

    verdict, account = diagnosis.verdict, diagnosis.account
    group = [finding for finding in diagnosis.findings if finding.verdict == verdict.id]
    apart = any(
        finding.scope is not Scope.LOOP
        or finding.of_job
        or finding.rule in NOT_OF_THE_PART
        or "GPU" in finding.title
        for finding in group
    )
    if verdict.id not in PARTS_OF_KIND or apart or not set(PARTS_OF_KIND[verdict.id]) <= set(account):
        return ""
    part = sum(account[name] for name in PARTS_OF_KIND[verdict.id]) / sum(account.values())
    claimed = max(sum(finding.share for finding in group if not finding.informational), BOUND_SHARE)
    if not part - 1e-9 <= verdict.share <= max(part, min(1.0, claimed)) + 1e-9:
        return f"{verdict.id} has {verdict.share}, its part {part}, its findings {claimed}"
    rest = {name: ns for name, ns in account.items() if name not in PARTS_OF_KIND["compute-bound"]}
    largest = max(set(rest) - set(PARTS_OF_KIND[verdict.id]), key=lambda name: rest[name])
    larger = rest[largest] / sum(account.values())
    if larger >= 3 * verdict.share and all(finding.claims is not None for finding in group):
        return f"{verdict.id} has {verdict.share}, but {largest} is {larger}"
    said = units.share(part) in verdict.sentence or verdict.share > part
    return "" if said else f"The part is {units.share(part)}, but: {verdict.sentence}"


@pytest.fixture(autouse=True)
def check_of_each_diagnosis(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold every diagnosis that a test made to the schema of diagnosis.json, and its verdict to its account."""
    from perfwrap.diagnosis import engine
    from perfwrap.diagnosis.model import Diagnosis
    from perfwrap.reports import json as json_report

    original, made = engine._diagnose, []

    def kept(*arguments: Any) -> Diagnosis:
        made.append(original(*arguments))
        return made[-1]

    monkeypatch.setattr(engine, "_diagnose", kept)
    yield
    for one in made[:MAX_CHECKED]:
        SCHEMA.validate(json.loads(json_report.text(one)))
        assert disagreement(one) == ""


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[[], WrittenRun]:
    """Return a function that begins an empty run folder."""
    made: list[WrittenRun] = []

    def make() -> WrittenRun:
        made.append(WrittenRun(tmp_path / f"run{len(made)}"))
        return made[-1]

    return make


@pytest.fixture
def run(make_run: Callable[[], WrittenRun]) -> WrittenRun:
    """An empty run folder, to be filled and read."""
    return make_run()


class MadeUpMachine:
    """A folder with a /proc and /sys of its own, for what takes a ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str | Path, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def version_2(self, own: str = "/work/job", mounted: str = "/") -> Path:
        """Mount control groups of version 2; return the folder that the mount shows."""
        self.write("proc/self/cgroup", f"0::{own}\n")
        mount = f"29 23 0:26 {mounted} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        self.write("proc/self/mountinfo", "23 1 0:21 / /proc rw - proc proc rw\n" + mount)
        top = self.root / "sys/fs/cgroup"
        top.mkdir(parents=True)
        return top

    def version_1(self, own: str = "/docker/abc", mounted: str = "/") -> dict[str, Path]:
        """Mount control groups of version 1, with controllers together as systemd does it."""
        self.write("proc/self/cgroup", f"5:memory:{own}\n4:cpu,cpuacct:{own}\n1:name=systemd:{own}\n0::/\n")
        places = {"cpu,cpuacct": "cpu\\040and\\040account", "memory": "memory"}
        lines = [
            f"3{at} 23 0:3{at} {mounted} /sys/fs/cgroup/{place} rw shared:9 - cgroup cgroup rw,{controllers}"
            for at, (controllers, place) in enumerate(places.items())
        ]
        self.write("proc/self/mountinfo", "\n".join([*lines, ""]))
        folders = {
            "cpu": self.root / "sys/fs/cgroup/cpu and account",
            "memory": self.root / "sys/fs/cgroup/memory",
        }
        for folder in folders.values():
            folder.mkdir(parents=True)
        return folders


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpMachine:
    """A machine of which nothing is known yet."""
    return MadeUpMachine(tmp_path / "root")


US = 1_000


class GpuRecording:
    """Writes what a GPU did, as the readers of nsys and of torch.profiler put it; times are in microseconds."""

    def __init__(self, source: str = "kineto", host: str = "here", pid: int = 100) -> None:
        self.builder = TimelineBuilder()
        self.source = source
        self.host_name = host
        self.process = self.builder.process(host, pid)
        self.main = self.builder.thread(self.process, 1, "main", pid)
        self._links = 0
        self._built: Timeline | None = None

    def thread(self, number: int) -> int:
        """Return the track of another thread."""
        return self.builder.thread(self.process, number, f"thread {number}", 100 + number)

    def host(
        self,
        start: float,
        took: float,
        operation: str,
        category: str = "other",
        name: str = "",
        thread: int | None = None,
        link: int | None = None,
        value: int | None = None,
    ) -> None:
        """Write what a thread did."""
        self.builder.add_row(
            "spans",
            start=round(start * US),
            duration=round(took * US),
            track=self.main if thread is None else thread,
            name=name or operation,
            category=category,
            operation=operation,
            link=link,
            value=value,
            source=self.source,
        )

    def step(self, start: float, took: float) -> None:
        """Write a step that the program marked."""
        self.host(start, took, "step", "step")

    def optimizer(self, end: float) -> None:
        """Write an optimizer step as perfwrap's recorder does; it ends a training step."""
        place = {"start": round((end - 10) * US), "duration": 10 * US, "track": self.main}
        names = {"name": "SGD#1", "category": "optimizer", "operation": "optimizer", "source": "recorder"}
        self.builder.add_row("spans", **place, **names)

    def window(self, start: float, end: float, note: str | None = None) -> None:
        """Write that torch.profiler recorded for perfwrap in this time."""
        times = {"start": round(start * US), "end": round(end * US) - 1}
        self.builder.add_row("coverage", what=WINDOW, track=self.process, **times, note=note, lost=0)

    def work(
        self,
        start: float,
        took: float,
        name: str = "elementwise_kernel",
        category: str = "kernel",
        operation: str = "kernel",
        stream: int = 7,
        device: int = 0,
        launched: float | None = None,
        call_took: float = 2,
        call: str = "cudaLaunchKernel",
        thread: int | None = None,
        value: int | None = None,
    ) -> None:
        """Write a kernel, copy or memory set, and the call that launched it when ``launched`` says when."""
        link = None
        if launched is not None:
            self._links += 1
            link = self._links
            self.host(launched, call_took, call, thread=thread, link=link)
        track = self.builder.stream(
            self.process, (1 << 40) + (device << 16) + stream, f"gpu/{device} stream {stream}"
        )
        self.builder.add_row(
            "spans",
            start=round(start * US),
            duration=round(took * US),
            track=track,
            name=name,
            category=category,
            operation=operation,
            link=link,
            value=value,
            source=self.source,
        )

    def copy(self, start: float, took: float, direction: str = "h2d", **more: Any) -> None:
        """Write a copy."""
        more = {"call": "cudaMemcpyAsync", "stream": 8, **more}
        self.work(start, took, f"Memcpy {direction}", "copy", direction, **more)

    def device_fact(self, key: str, value: str, device: int = 0) -> None:
        """Write a fact about a GPU."""
        track = self.builder.device(self.host_name, f"gpu/{device}")
        self.builder.add_row("facts", time=0, track=track, key=key, value=value, source=self.source)

    def fact(self, key: str, value: str) -> None:
        """Write a fact about the process."""
        self.builder.add_row("facts", time=0, track=self.process, key=key, value=value, source=self.source)

    def build(self) -> Timeline:
        """Return the timeline; what is written afterwards counts no more."""
        self._built = self._built or self.builder.build({})
        return self._built


@pytest.fixture
def make_recording() -> Callable[..., GpuRecording]:
    """Return a function that begins an empty recording of GPUs."""
    return GpuRecording


@pytest.fixture
def recording() -> GpuRecording:
    """An empty recording of GPUs, to be filled and built."""
    return GpuRecording()


class RecordedDocument:
    """Makes the document of a small recorded run, whose step time and surroundings a test chooses."""

    _made: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, make_run: Callable[[], WrittenRun]) -> None:
        self._make_run = make_run

    def folder(
        self,
        step_ms: float = 20.0,
        steps: int = 80,
        spread: float = 0.02,
        data_ms: float = 5.0,
        batch: int = 32,
        optimizer: str = "SGD#1",
        command: tuple[str, ...] = ("python", "train.py"),
        cores_busy: float | None = 1.0,
        seed: int = 0,
        **facts: object,
    ) -> Path:
        """Record a run: each step takes ``step_ms``, of them ``data_ms`` for its batch, give or take the spread."""
        run = self._make_run()
        host = {"name": "here", "cpu_model": "Some CPU", "cores_usable": 4}
        start, end = {"monotonic_ns": 0, "wall_ns": 10**18}, {"monotonic_ns": 9 * 10**9, "wall_ns": 10**18}
        run.folder.write_manifest(
            {"command": list(command), "host": host, "start": start, "end": end, "exit": {"code": 0}}
        )
        known = {"torch": "2.13.0+cpu", "loader/1/num_workers": 0, **facts}
        journal = run.journal(opened=1_000_000_000, **known)
        monitors = run.journal(pid=101, opened=1_000_000_000, role="monitor")
        chance = Random(seed)
        for _ in range(steps):
            now = chance.gauss(1.0, spread)
            data, rest = (max(1, round(ms * now * 1e6)) for ms in (data_ms, step_ms - data_ms))
            journal.data(data, batch=batch, line="train.py:3:main")
            journal.forward(rest * 3 // 10)
            journal.backward(rest * 5 // 10, line="train.py:6:main")
            journal.optimizer(rest - rest * 3 // 10 - rest * 5 // 10, name=optimizer)
            if cores_busy is not None:
                monitors.sample("host", "cpu_cores_busy", cores_busy, journal.now)
                monitors.sample("process/100", "cpu_cores", 1.0, journal.now)
        monitors.fact("cores_online", 4)
        run.read()
        return run.folder.path

    def __call__(self, **surroundings: Any) -> dict[str, Any]:
        """Return the diagnosis of such a run, as its diagnosis.json has it; each is worked out once."""
        from perfwrap.commands.compared_runs import document

        key = repr(sorted(surroundings.items()))
        if key not in self._made:
            self._made[key] = document(str(self.folder(**surroundings)))[1]
        return copy.deepcopy(self._made[key])


@pytest.fixture
def recorded_document(make_run: Callable[[], WrittenRun]) -> RecordedDocument:
    """A function that returns the document of a recorded run."""
    return RecordedDocument(make_run)
