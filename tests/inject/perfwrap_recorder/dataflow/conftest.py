"""Running training programs with dataflow windows, and without perfwrap."""

from __future__ import annotations

import difflib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..probes.conftest import BARE, INSTALL

TORCH = find_spec("torch")
assert TORCH is not None and TORCH.origin is not None
MODE_CODE = Path(TORCH.origin).parent / "utils" / "_python_dispatch.py"
CONVERTS = "ignore_compile_internals" in MODE_CODE.read_text(encoding="utf-8")
"""Whether this version of PyTorch is so new that inference mode and `as_subclass` work while a mode is on the stack."""

INSPECT = """
from perfwrap_recorder.dataflow import operation_mode, operation_windows, tensor_values, unseen_reads
from perfwrap_recorder.dataflow import watched_operations, window_obstacles, window_plan
from perfwrap_recorder.journal import thinning
thinning.may_pause = False
windows = operation_windows
window_plan.FIRST_STEPS = window_plan.GAP_STEPS = window_plan.BARE_STEPS = window_plan.RANKS_FIRST_STEPS = 4
window_plan.MAX_WAITED_STEPS = 0
"""
"""Windows of the steps 5 to 7 and 12 to 14."""

STEPS = 16
"""Steps of a program with both windows."""

HELPERS = f"""
import hashlib, random
import numpy
STEPS = {STEPS}
torch.manual_seed(0)
random.seed(0)
numpy.random.seed(0)

def digest(tensor):
    tensor = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]

def tell(*losses):
    print(*(digest(loss) for loss in losses))

def tell_all(*models):
    for model in models:
        for name, tensor in model.state_dict().items():
            print(name, tensor.dtype, tensor.stride(), digest(tensor))
    print(digest(torch.get_rng_state()), random.random(), numpy.random.rand())
"""
"""What programs print: losses, weights and the states of random generators, bit for bit."""


def notes(finished) -> list[str]:
    """Return what the coverage of the windows says, in order."""
    return [
        finished.journals[0].texts[found.value]
        for found in finished.journals[0].of("COVERAGE")
        if found.name == "dataflow"
    ]


def is_window(note: str) -> bool:
    """Return whether a note is that of a complete window."""
    return note.startswith("operations of steps ")


def is_given_up(note: str) -> bool:
    """Return whether a note is that of a window that was given up."""
    return note.startswith("window given up: ")


def windows(finished) -> list[dict]:
    """Return the windows that were written."""
    return [
        json.loads(path.read_text()) for path in sorted((finished.run_dir / "tools").glob("operations-*"))
    ]


def rows(window: dict, name: str) -> list[list]:
    """Return the rows of one function."""
    return [row for row in window["operations"] if window["functions"][row[0]][0] == name]


@pytest.fixture(scope="module")
def train(make_warm_run):
    """Run a program that has torch, nn, every probe and windows; checks that nothing of the recorder failed."""
    run = make_warm_run()

    def train(program: str, is_whole: bool = True, before: str = "", **options):
        for old in [*(run.folder / "journal").glob("*"), *(run.folder / "tools").glob("*")]:
            old.unlink()
        ending = "\nassert not guard.failed, guard.failed\n" if is_whole else ""
        return run(
            INSTALL + INSPECT + before + "windows._install(torch)\n" + HELPERS + program + ending, **options
        )

    return train


@pytest.fixture(scope="module")
def same(train, warm_python):
    """Run a program with windows and without perfwrap; both must print the same, and ``windows`` be written."""

    def same(program: str, windows: int | None = 2, **options):
        done = train(program, **options)
        script = done.run_dir / "program.py"
        ours = script.read_text().index(HELPERS + program)
        lines = script.read_text()[:ours].count("\n")
        script.write_text(BARE + "\n" * (lines - BARE.count("\n")) + HELPERS + program)
        bare = warm_python.run(script, str(done.run_dir), cwd=done.run_dir)
        assert bare.returncode == 0, bare.stderr
        assert "\n".join(difflib.unified_diff(bare.stdout.split("\n"), done.stdout.split("\n"), n=1)) == ""
        assert bare.stdout
        if windows is not None:
            assert sum(map(is_window, notes(done))) == windows, notes(done)
        return done

    return same
