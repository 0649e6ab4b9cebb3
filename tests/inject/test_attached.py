"""The recorder comes into a program that runs already, leaves it, and comes back.

``sys.remote_exec`` has a program run a file in its main thread between two of its operations. So that this can be
tested on every Python, the programs here run the same file themselves, at given places.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from perfwrap.launch import injection, manifest
from perfwrap.launch.options import Options
from perfwrap.run_folder import START_FIELDS, RunFolder
from perfwrap.sources.journals import run_journals

PROGRAM = """
import gc, json, os, random
import torch
from torch.utils.data import DataLoader, TensorDataset

def attached(path):
    exec(compile(open(path).read(), path, "exec"), {"__builtins__": __builtins__})

class Watched:
    "Holds what perfwrap attach would hold."
    def __init__(self, folder):
        import fcntl
        self.file = open(folder, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

torch.manual_seed(0)
random.seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(net.parameters(), 0.1)
losses = []
data = TensorDataset(torch.randn(640, 4))

def train(until=40):
    for number, (batch,) in enumerate(DataLoader(data, batch_size=16, shuffle=True)):
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

def standing():
    places = (torch.nn.Module, "__call__"), (torch.Tensor, "item"), (torch.Tensor, "tolist"), (torch.Tensor, "to")
    return [getattr(getattr(owner, name), "__code__", None) and getattr(owner, name).__code__.co_filename
            for owner, name in places]

TEST
print(json.dumps([losses[-1:], random.random(), torch.rand(1).item(), said]))
"""

TRAINS = """
said = []
import torch._dynamo  # as the first step of an optimizer has it
train()
for script, watched in PLACES:
    held = watched and Watched(watched)
    if script:
        attached(script)
    train()
    said.append([bool(name and "<perfwrap" in name) for name in standing()])
    if held:
        held.file.close()
    import time
    time.sleep(0.11)  # how seldom it looks for its watcher
    train()
    said.append([bool(name and "<perfwrap" in name) for name in standing()])
    said.append(len(gc.callbacks))
"""


class Attach:
    """A run folder that is ready to be attached from."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = RunFolder(folder)
        self.folder.starts.mkdir()
        self.folder.journal.mkdir()
        self.folder.write_manifest(manifest.begin(["python"], Options(), {}))
        injection.prepare(self.folder, {}, watched=True)
        self.script = injection.add_attached(self.folder)
        os.close(injection.hold_watch(self.folder))
        (self.watched,) = folder.glob(".inject/*/watched")

    @property
    def starts(self) -> list[dict[str, str]]:
        lines = [line for path in self.folder.starts.glob("*.log") for line in path.read_text().splitlines()]
        return [dict(zip(START_FIELDS, line.split("\t"), strict=True)) for line in lines]

    @property
    def operations(self) -> dict[str, int]:
        spans = run_journals.read(self.folder).spans
        return dict(spans.group_by("operation").agg(pl.len()).iter_rows())


@pytest.fixture
def attach(tmp_path: Path) -> Callable[[str], Attach]:
    return lambda name: Attach(tmp_path / name)


def run(test: str, places: list[tuple[str, str]], **more: str) -> list[object]:
    """Run the program; its last line is JSON, and it says nothing else."""
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    program = PROGRAM.replace("TEST", test).replace("PLACES", repr(places))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERFWRAP")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env={**kept, **more}
    )
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    return list(json.loads(line))


def test_it_comes_leaves_and_comes_back_and_the_program_computes_the_same(attach) -> None:
    first, second = attach("first"), attach("second")
    places = [(str(each.script), str(each.watched)) for each in (first, second)]
    *recorded, said = run(TRAINS, places)
    *bare, silent = run(TRAINS, [("", ""), ("", "")])
    assert recorded == bare
    assert said[0] == said[3] == said[1] == said[4] == [False] * 4 == silent[1]
    assert said[2] == said[5] == silent[2]
    for each in (first, second):
        assert [(start["event"], start["vector"]) for start in each.starts] == [("start", "attached")]
        operations = each.operations
        # What ran while it was watched, and the one step at whose end it looked and left.
        assert 40 <= operations["forward"] <= 42
        assert 40 <= operations["optimizer"] <= 42
        assert 40 <= operations["sync"] <= 42
        coverage = run_journals.read(each.folder).coverage
        assert {"probe/forward", "probe/data_loader", "probe/sync"} <= set(coverage["what"])

        facts = dict(run_journals.read(each.folder).facts.select("key", "value").iter_rows())
        assert facts["optimizer/AdamW#1/class"] == "torch.optim.adamw.AdamW"
        assert facts["role"] == "main"


LEAVES_NOTHING = """
import sys, time, warnings
warnings.simplefilter("ignore")  # deprecated classes warn when they are looked at
import torch._dynamo  # as the first step of an optimizer has it
train()

FUNCTION = type(train)

def functions():
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name != "torch" and not name.startswith("torch."):
            continue
        owners = [value for value in list(vars(module).values()) if isinstance(value, type)]
        for owner in [module, *(one for one in owners if one.__module__.startswith("torch"))]:
            for key, value in list(vars(owner).items()):
                inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                codes, inside = [], []
                while isinstance(inner, FUNCTION):
                    codes.append(id(inner.__code__))
                    cells = [cell for cell in inner.__closure__ or () if cell != type(cell)()]
                    inside += [id(cell.cell_contents) for cell in cells]
                    inner = vars(inner).get("__wrapped__")
                found[name, owner.__name__, key] = id(value), codes, inside
    return found

before, methods, callbacks = functions(), dict(vars(torch.Tensor)), list(gc.callbacks)
(script, watched), = PLACES
held = Watched(watched)
attached(script)
now = functions()
during = sum(now[key] != value for key, value in before.items())
train()
held.file.close()
time.sleep(0.11)
train()
after = functions()
said = [len(before), during, [key for key, value in before.items() if after[key] != value],
        methods == dict(vars(torch.Tensor)), callbacks == gc.callbacks]
"""


def test_after_it_has_left_every_function_of_torch_is_as_before(attach) -> None:
    place = attach("run")
    *_, (count, during, changed, methods, callbacks) = run(
        LEAVES_NOTHING, [(str(place.script), str(place.watched))]
    )
    assert count > 10_000
    assert during > 20
    assert changed == []
    assert (methods, callbacks) == (True, True)
    assert place.operations["forward"] >= 40


REFUSED = """
said = []
for script, watched in PLACES:
    held = Watched(watched)
    attached(script)
said = standing()
"""


@pytest.mark.parametrize(
    ("test", "more", "reason"),
    [
        (REFUSED, {"PERFWRAP_OFF": "1"}, "PERFWRAP_OFF=1 is set in its environment"),
        ("torch.compile(net, backend='eager')(torch.ones(1, 4))" + REFUSED, {}, "torch.compile has compiled"),
    ],
)
def test_what_speaks_against_it_is_said_and_nothing_is_touched(attach, test, more, reason) -> None:
    place = attach("run")
    *_, standing = run(test, [(str(place.script), str(place.watched))], **more)
    assert not any(name and "<perfwrap" in name for name in standing)
    assert [start["event"] for start in place.starts] == ["start", "failed"]
    assert place.starts[1]["argv"].startswith(reason)
    assert not list(place.folder.journal.iterdir())


def test_who_is_being_recorded_is_not_recorded_twice(attach) -> None:
    first, second = attach("first"), attach("second")
    run(
        "first, second = PLACES; held = Watched(first[1]); attached(first[0]); attached(second[0]); train(); said = 0",
        [(str(each.script), str(each.watched)) for each in (first, second)],
    )
    assert [start["event"] for start in first.starts] == ["start"]
    assert second.starts[1]["argv"] == "perfwrap records it already, into another run folder"
    assert first.operations["forward"] == 40


FORKS = """
said = []
script, watched = PLACES[0]
held = Watched(watched)
attached(script)
train()
def child():
    pid = os.fork()
    if not pid:
        train()
        os._exit(0)
    os.waitpid(pid, 0)
child()
held.file.close()
child()
"""


def test_a_child_forked_while_detached_records_nothing(attach) -> None:
    place = attach("run")
    run(FORKS, [(str(place.script), str(place.watched))])
    assert [start["event"] for start in place.starts] == ["start", "fork"]
    assert len(list(place.folder.journal.iterdir())) == 2


def test_a_run_folder_that_is_gone_counts_as_detached(attach) -> None:
    place = attach("run")
    test = """
import shutil
held = Watched(PLACES[0][1])
attached(PLACES[0][0])
train()
shutil.rmtree(FOLDER)
import time
time.sleep(0.11)
train()
train()
said = standing()
""".replace("FOLDER", repr(str(place.folder.path)))
    *_, standing = run(test, [(str(place.script), str(place.watched))])
    assert not any(name and name.endswith("<perfwrap>") for name in standing)
