"""Loops in the real journal format, and one rule's answer about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.diagnosis.verdict import VERDICTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.model import Answer, Finding, Outcome, Rule, Scope, rule_id
from perfwrap.rules.needs import why_missing

MS = 1_000_000
NET = 3
"""A forward pass that trains, with gradients."""


class Loop:
    """A training loop that writes itself; durations are in milliseconds."""

    def __init__(self, run: Any, **facts: object) -> None:
        self.run = run
        self.journal = run.journal(opened=1_000 * MS, **{"threads": 2, **facts})

    def loader(self, number: int = 1, **settings: object) -> None:
        """Write the settings of a DataLoader made at train.py:12."""
        known = {"num_workers": 0, "batch_size": 32, "created": "train.py\x1f12\x1fmain", "dataset": "Digits"}
        for key, value in {**known, **settings}.items():
            self.journal.fact(f"loader/{number}/{key}", value)

    def span(
        self, operation: str, ms: float, name: str = "", value: int = 0, line: int | None = None
    ) -> None:
        """Write one recorded event of train.py."""
        where = "" if line is None else f"train.py:{line}:main"
        self.journal.span(operation, round(ms * MS), name, value, where)

    def python(self, ms: float) -> None:
        """Let the program's own code run."""
        self.journal.python(round(ms * MS))

    def batch(self, ms: float, loader: int = 1) -> None:
        """Wait for a batch."""
        self.span("data", ms, f"loader/{loader}", 32, 20)

    def compute(self, forward: float = 4, backward: float = 5, optimizer: float = 1) -> None:
        """Do the model's own work, with nothing between."""
        self.span("forward", forward, "Net", NET, 21)
        self.span("backward", backward, line=23)
        self.span("optimizer", optimizer, "SGD#1", line=24)

    def sample(self, entity: str, metric: str, value: float, times: int = 50) -> None:
        """Let a monitor see one value all the time."""
        monitor = self.monitor()
        for number in range(times):
            monitor.sample(entity, metric, value, self.journal.now - number * 10 * MS)

    def monitor(self) -> Any:
        """Return the monitor's journal, begun at the first question."""
        for journal in self.run.journals:
            if journal.path.name.startswith("here-999"):
                return journal
        return self.run.journal(pid=999, opened=1_000 * MS, role="monitor")

    def cores(self, usable: float, runnable: float | None = None, busy: float | None = None) -> None:
        """Write how many cores there are and how many tasks wanted them."""
        self.monitor().fact("cores_usable", usable)
        self.sample("host", "cpu_cores_busy", busy if busy is not None else min(usable, runnable or usable))
        if runnable is not None:
            self.sample("host", "runnable_tasks", runnable)

    def worker(
        self,
        number: int,
        getitem: float | list[float],
        collate: float = 1,
        idle: float = 0,
        **series: float,
    ) -> Any:
        """Let a worker of loader 1 make batches as long as the loop lasts; ``series`` is what a monitor saw of it.

        Several times of ``getitem`` take turns.
        """
        times = getitem if isinstance(getitem, list) else [getitem]
        pid = 101 + number
        worker = self.run.journal(pid=pid, role="worker", ppid=100, opened=1_000 * MS, worker_id=number)
        batch = 0
        while worker.now < self.journal.now:
            if idle:
                worker.span("idle", round(idle * MS), "worker")
            with worker.inside("fetch", "Data", 32):
                took = round(times[batch % len(times)] * MS)
                worker.span("getitem", took, "__main__.Data.__getitem__", 32, "train.py:7:Data.__getitem__")
                worker.span("collate", round(collate * MS), "__main__.pad", 1 << 20, "train.py:9:pad")
            batch += 1
        for metric, value in series.items():
            self.sample(f"process/{pid}", metric, value)
        return worker


def check_options(finding: Finding) -> None:
    """Check what every rule promises of its options."""
    for option in finding.options:
        assert re.fullmatch(r"[A-Z].*[.]", option.edit), option.edit
        assert not re.search(r"[.] [A-Z]", option.edit), f"One sentence: {option.edit}"
        assert not option.basis.endswith("."), option.basis
        assert 0 <= option.saving[0] <= option.saving[1] <= 1
    assert len({option.edit for option in finding.options}) == len(finding.options)


@pytest.fixture
def loop(run: Any) -> Loop:
    """A loop to be written, of one process."""
    return Loop(run)


@pytest.fixture
def make_loop(run: Any) -> Callable[..., Loop]:
    """Return a function that begins the loop of one process, with facts about it."""
    return lambda **facts: Loop(run, **facts)


@pytest.fixture
def ask(run: Any) -> Callable[[Rule], Answer]:
    """Return a function that asks one rule about what has been written."""

    def answer(rule: Rule) -> Answer:
        evidence = Evidence(run.read())
        assert evidence.get(find_main_trainer) is not None
        assert [evidence.get(why_missing, need) for need in rule.NEEDS] == [None] * len(rule.NEEDS)
        found = rule.check(evidence, evidence.get(find_main_trainer), rule.Limits())
        for finding in found if isinstance(found, list) else ():
            assert finding.verdict in (None, *VERDICTS)
            check_options(finding)
        return found

    return answer


@pytest.fixture
def find(ask: Callable[[Rule], Answer]) -> Callable[[Rule], Finding]:
    """Return a function that asks one rule and expects exactly one finding."""

    def only(rule: Rule) -> Finding:
        answer = ask(rule)
        assert isinstance(answer, list), answer
        assert len(answer) == 1
        return answer[0]

    return only


@pytest.fixture
def diagnosis(run: Any) -> Callable[[], Diagnosis]:
    """Return a function that diagnoses what has been written."""
    return lambda: diagnose(run.read())


class GpuLoop:
    """A loop of steps of 1 ms on a GPU, as a profiler recorded it; times are in microseconds."""

    def __init__(self, recording: Any) -> None:
        self.recording = recording
        self.start = 0.0

    def step(
        self,
        kernel: float = 90,
        name: str = "ampere_bf16_s16816gemm_bf16_128x128",
        at_work: str = "op",
        category: str = "other",
        beside: str = "",
    ) -> None:
        """Write a step of ten kernels, 100 apart; before each the host is at something until it launches.

        ``beside`` names a kernel of another stream that fills what the ten leave.
        """
        start = self.start
        self.recording.step(start, 1_000)
        for number in range(10):
            at = start + 100 * number
            self.recording.work(at, kernel, name, launched=at - 5)
            self.recording.host(at + 10, 84, at_work, category)
            if beside:
                self.recording.work(at + kernel, 100 - kernel, beside, stream=9, launched=at - 3)
        self.recording.host(start + 900, 5, "op")
        self.recording.host(start + 900, 80, "optimizer", "optimizer")
        self.start += 1_000

    def sequence(self, *kernels: tuple[str, float], times: int = 20) -> None:
        """Write steps of these kernels, one right after the other, each by name and length."""
        for _ in range(times):
            self.recording.step(self.start - 5, sum(took for _, took in kernels))
            for name, took in kernels:
                self.recording.work(self.start, took, name, launched=self.start - 5)
                self.start += took
        self.recording.host(self.start, 5, "optimizer", "optimizer")

    def outcome(self, rule: Rule) -> Outcome:
        """Return what the whole engine makes of a rule."""
        outcomes = diagnose(self.recording.build()).outcomes
        return next(outcome for outcome in outcomes if outcome.rule == rule_id(rule))

    def ask(self, rule: Rule) -> Answer:
        """Ask one rule."""
        evidence = Evidence(self.recording.build())
        assert evidence.get(find_main_trainer) is not None
        return rule.check(evidence, evidence.get(find_main_trainer), rule.Limits())

    def find(self, rule: Rule) -> Finding:
        """Ask one rule and expect exactly one finding."""
        answer = self.ask(rule)
        assert isinstance(answer, list), answer
        (finding,) = answer
        assert finding.scope is Scope.WINDOW
        assert finding.verdict in (None, *VERDICTS)
        check_options(finding)
        return finding


@pytest.fixture
def gpu_loop(recording: Any) -> GpuLoop:
    """A loop on a GPU, to be written."""
    return GpuLoop(recording)
