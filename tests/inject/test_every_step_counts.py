"""However a program trains, the journal has as many steps of its optimizers as it took, and as many batches.

Trainings follow each other in one process in any order: with new or several optimizers, with and without loaders, in
threads and children, with sleeps between them that make steps long. ``trainings.py`` carries them out and counts.

With PERFWRAP_TEST_CONTROL=1 every step is recorded in detail: whatever fails then is the fault of the tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, HEADER, RECORD, SPANS, SUM

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed here"),
    pytest.mark.timeout(900),
]

PROGRAM = Path(__file__).with_name("trainings.py")
PAUSE_STEPS = 128
"""In a pause of detail, counted steps are written at least that often."""
PYTHONS = [sys.executable, *filter(None, os.environ.get("PERFWRAP_TEST_PYTHONS", "").split(":"))]


def counted(path: Path) -> tuple[int, Counter[str], int]:
    """Return a journal's process, its steps by class of the optimizers, and its batches; sums are among them."""
    data = path.read_bytes()
    pid = HEADER.unpack(data[: HEADER.size])[2]
    slots = list(RECORD.iter_unpack(data))[1:]
    pieces: dict[int, dict[int, bytes]] = {}
    for slot in slots:
        if slot[5] == DESCRIBE["TEXT"]:
            pieces.setdefault(slot[3], {})[slot[4]] = RECORD.pack(*slot)[:24]
    texts = {
        name: b"".join(found[number] for number in sorted(found)).rstrip(b"\0").decode()
        for name, found in pieces.items()
    }
    steps: Counter[str] = Counter()
    batches = 0
    for _, _, value, name, _, kind in slots:
        many = value if kind & SUM else 1
        if kind & ~SUM == SPANS["OPTIMIZER"]:
            steps[texts.get(name, "").split(FIELD_SEPARATOR)[0].split("#")[0]] += many
        elif kind & ~SUM == SPANS["DATA"]:
            batches += many
    return pid, steps, batches


class Trainer:
    """Has trainings carried out under perfwrap, and compares what they counted with what stands in the journals."""

    def __init__(self, python: str, run, folder: Path) -> None:
        self.python, self.run, self.folder = python, run, folder
        self._server: subprocess.Popen[str] | None = None

    def _begin(self) -> subprocess.Popen[str]:
        if self._server is None or self._server.poll() is not None:
            self._server = subprocess.Popen(
                [self.python, str(PROGRAM), str(self.folder)],
                env=self.run.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._server.stdout.readline() == "ready\n"
        return self._server

    def end(self) -> None:
        if self._server is not None:
            self._server.stdin.close()
            assert self._server.wait(60) == 0
            self._server.stdout.close()

    def alone(self, deeds: list) -> None:
        """Carry out in a new process."""
        self._forget()
        done = self.run.start(self.python, PROGRAM, self.folder, json.dumps(deeds), timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        self._compare()

    def __call__(self, deeds: list) -> None:
        """Carry out in a child of a process that has imported torch."""
        server = self._begin()
        self._forget()
        server.stdin.write(json.dumps(deeds) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer == "0\n", f"the trainings ended with {answer!r}"
        self._compare(server.pid)

    def _forget(self) -> None:
        for path in [*self.run.folder.journal.glob("*.pwj"), *self.folder.glob("*.json")]:
            pid = str(self._server.pid) if self._server is not None else "none"
            if pid not in path.name:
                path.unlink()

    def _compare(self, but: int = 0) -> None:
        took = {int(path.stem): json.loads(path.read_text()) for path in self.folder.glob("*.json")}
        assert took
        have: dict[int, tuple[Counter[str], int]] = {}
        for path in self.run.folder.journal.glob("*.pwj"):
            pid, steps, batches = counted(path)
            if pid != but:
                earlier = have.get(pid, (Counter(), 0))
                have[pid] = earlier[0] + steps, earlier[1] + batches
        true = [(found["steps"], found["batches"]) for _, found in sorted(took.items())]
        nothing = Counter(), 0  # a process in which nothing is to be noted needs no journal
        read = [(dict(steps), batches) for steps, batches in (have.get(pid, nothing) for pid in sorted(took))]
        if any(
            b"so they are not counted" in path.read_bytes() for path in self.run.folder.journal.glob("*.pwj")
        ):
            # PyTorch 2.0 removes the calls around steps when the program compiles; the report says so.
            assert [batches for _, batches in read] == [batches for _, batches in true]
            return
        assert read == true, "steps by class and batches of each process: read, took"


def record_all_in_detail(run) -> None:
    path = run.data / "settings"
    text = path.read_text()
    changed = re.sub(r"(max_overhead\W+)[\d.]+", r"\g<1>10.0", text)
    assert changed != text, text
    path.write_text(changed)


@pytest.fixture(scope="module", params=PYTHONS, ids=[Path(python).parents[1].name for python in PYTHONS])
def trainer(request, make_lasting_run, tmp_path_factory):
    run = make_lasting_run()
    if os.environ.get("PERFWRAP_TEST_CONTROL") == "1":
        record_all_in_detail(run)
    trainer = Trainer(request.param, run, tmp_path_factory.mktemp("counts"))
    yield trainer
    trainer.end()


def train(kind: str = "SGD", steps: int = 1_000, **options) -> list:
    return ["train", {"kind": kind, "steps": steps, **options}]


FORMS = {
    "one training": [train(steps=2_000)],
    "two trainings": [train(), train()],
    "three short trainings": [train(steps=300)] * 3,
    "ten short trainings": [train(steps=150)] * 7,
    "other classes": [train(), train("Adam"), train("AdamW", 500)],
    "optimizers that stay alive": [train(kept=True), train(kept=True)],
    "optimizers that are made anew": [train(steps=1_500, anew=100)],
    "optimizers that are made anew for each step": [train(steps=800, anew=1)],
    "two optimizers in turn": [train(steps=1_500, models=2)],
    "three optimizers in turn, then one": [train(models=3), train(steps=600)],
    "one, then two in turn": [train(), train("Adam", 1_000, models=2)],
    "loaders": [train(loader="one"), train(loader="new")],
    "with a loader, then without": [train(loader="one"), train()],
    "without a loader, then with": [train(), train(loader="new")],
    "closures": [train("LBFGS", 400), train("LBFGS", 400)],
    "closures after plain steps": [train(), train("LBFGS", 200), train()],
    "scaled": [train(steps=600, scaled=True), train(steps=600, scaled=True)],
    "scheduled": [train(steps=600, scheduled=True), train(steps=600, scheduled=True)],
    "steps without gradients": [train(steps=1_500, backward=False), train(steps=1_500, backward=False)],
    "long steps after short ones": [train(), train(steps=100, every=1, ms=3), train(steps=600)],
    "a long step now and then": [train(steps=1_500, every=100, ms=20)],
    "a sleep": [train(), ["sleep", {"ms": 300}], train()],
    "a thread after another": [["threads", {"trainings": [train(), train()]}]],
    "a thread after the main one": [
        train(steps=600),
        ["threads", {"trainings": [train(steps=600)]}],
        train(steps=600),
    ],
    "two threads": [["together", {"one": [train(steps=2_000)], "other": [train("Adam", 1_500)]}], train()],
    "a child in between": [
        train(steps=700),
        ["fork", {"child": [train(steps=600), train(steps=600)]}],
        train(steps=600),
    ],
    "a child of a child": [
        train(steps=700),
        ["fork", {"child": [train(steps=700), ["fork", {"child": [train(steps=600)]}]]}],
    ],
    "a process of multiprocessing in between": [
        train(steps=700),
        ["start", {"child": [train(steps=600), train("Adam", 700)], "method": "fork"}],
        train(steps=600),
    ],
    "inference in between": [train(), ["infer", {"calls": 1_000}], train(steps=600)],
    "inference first": [["infer", {"calls": 2_000}], train(), train(steps=600)],
    "a compilation in between": [train(), ["compile", {}], train(steps=600)],
    "collected in between": [train(kept=True), ["forget", {}], train(steps=600)],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_step_and_batch_counts(trainer: Trainer, form: str) -> None:
    trainer(FORMS[form])


@pytest.mark.parametrize("form", ["two trainings", "three short trainings"])
def test_every_step_and_batch_of_a_program_counts(trainer: Trainer, form: str) -> None:
    trainer.alone(FORMS[form])


def test_steps_while_the_program_ends_count(trainer: Trainer) -> None:
    """Handlers of ``atexit`` that were registered before torch was imported run after the recorder's."""
    trainer.alone([train(), ["at_exit", {"deeds": [train(steps=700), train("Adam", 300)]}]])


@pytest.mark.parametrize(("end", "lost"), [(signal.SIGINT, 0), (signal.SIGKILL, 2 * PAUSE_STEPS)])
def test_what_was_counted_is_there_after_a_signal(trainer: Trainer, run, end: int, lost: int) -> None:
    """Ctrl-C ends a program in order; a killed one loses what it counted last, of each of its two optimizers."""
    deeds = json.dumps([train(steps=1_500), train(steps=1_500), ["sleep", {"ms": 100_000}]])
    if os.environ.get("PERFWRAP_TEST_CONTROL") == "1":
        record_all_in_detail(run)
    program = subprocess.Popen(
        [trainer.python, PROGRAM, run.folder.path, deeds], env=run.environment, stderr=-1
    )
    while program.poll() is None:
        journals = list(run.folder.journal.glob("*.pwj"))
        steps = sum(sum(counted(path)[1].values()) for path in journals)
        if steps == 3_000:
            break
        if steps > 500 and _sleeps(program.pid):
            break
        time.sleep(0.1)
    program.send_signal(end)
    program.communicate(timeout=240)
    (path,) = run.folder.journal.glob("*.pwj")
    assert 3_000 - lost <= sum(counted(path)[1].values()) <= 3_000


def _sleeps(pid: int) -> bool:
    """Say whether a process has used no processor for a while."""

    def used() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]

    before = used()
    time.sleep(0.5)
    return used() == before


IS_EXPLORING = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
PHASES = list(Phase) if IS_EXPLORING else [Phase.explicit, Phase.generate]
"""To shrink an example takes minutes."""

KINDS = st.sampled_from(["SGD", "SGD", "Adam", "AdamW"])
TRAININGS = st.one_of(
    st.builds(
        train,
        KINDS,
        st.sampled_from([50, 200, 500, 1_000, 3_000]),
        loader=st.sampled_from(["none", "one", "new"]),
        models=st.integers(1, 3),
        scaled=st.booleans(),
        scheduled=st.booleans(),
        anew=st.sampled_from([0, 0, 0, 1, 30, 200]),
        backward=st.sampled_from([True, True, False]),
        kept=st.booleans(),
    ).map(lambda deed: [deed[0], {**deed[1], "scaled": deed[1]["scaled"] and deed[1]["backward"]}]),
    st.builds(train, KINDS, st.integers(100, 1_000)),
    st.builds(train, KINDS, st.integers(50, 500), every=st.integers(10, 200), ms=st.integers(1, 15)),
    st.builds(train, st.just("LBFGS"), st.integers(50, 200), loader=st.sampled_from(["none", "one"])),
    st.builds(train, KINDS, st.integers(10, 60), every=st.just(1), ms=st.integers(1, 5)),
)
"""A training; of one that has no backward pass a scaler would refuse the step."""
QUIET = st.one_of(
    st.builds(lambda ms: ["sleep", {"ms": ms}], st.integers(1, 300)),
    st.builds(lambda calls: ["infer", {"calls": calls}], st.integers(100, 1_000)),
    st.just(["forget", {}]),
)
SIMPLE = st.one_of(TRAININGS, TRAININGS, TRAININGS, QUIET)
DEEDS = st.one_of(
    TRAININGS,
    TRAININGS,
    TRAININGS,
    QUIET,
    st.builds(lambda child: ["fork", {"child": child}], st.lists(SIMPLE, min_size=1, max_size=2)),
    st.builds(lambda found: ["threads", {"trainings": found}], st.lists(TRAININGS, min_size=1, max_size=2)),
    st.builds(
        lambda one, other: ["together", {"one": [one], "other": [other]}],
        TRAININGS,
        TRAININGS,
    ),
)


@settings(max_examples=60 if IS_EXPLORING else 12, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(st.lists(DEEDS, min_size=1, max_size=4))
def test_every_step_and_batch_counts_whatever_follows_what(trainer: Trainer, deeds: list) -> None:
    trainer(deeds)
