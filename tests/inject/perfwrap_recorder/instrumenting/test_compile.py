"""torch.compile and its kin capture the same graphs, break in the same places and give the same results.

What is captured by a bare program is compared with what is captured in a recorded one; see
compile_scenarios.py for the programs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE / "compile_scenarios.py"
INJECT = HERE.parents[3] / "inject"
MARK = re.compile(r"/<perfwrap[^>]*>")
SKIP_REASON = re.compile(r"filename: `\S+torch/(optim/lr_scheduler|_compile)\.py`, skip reason: file .*?\)")
"""Schedulers are skipped by the exact name of their file; their wrappers bear that of another skipped one."""
ADDRESS = re.compile(r"0x[0-9a-f]+")

FEWER_FRAMES = (
    "optimizer_step",
    "adamw_step",
    "whole_step",
    "whole_step_with_clipping_and_scheduler",
    "scheduler_step",
    "scaled_step",
    "data_parallel",
)
"""Where the empty ``Optimizer._optimizer_step_code`` is looked at once less; nothing comes of it. And where DDP's first
call, bare or not, imports modules: how often Dynamo then looks into Python's ``typing`` is chance (caches by hash)."""

ALWAYS_BEFORE = ("subclass_that_overrides",)
"""Dynamo's first compilation decides what is overridable; the recorder always starts before it."""


IS_OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
"""Older versions give other reasons for the same graph breaks where a function of ours stands for one of theirs."""
FUNCTION = re.compile(r"<(?:built-in )?function (\w+)(?: at 0x)?>")


def names() -> list[str]:
    """Return the names of all scenarios, without importing torch."""
    tree = ast.parse(SCENARIOS.read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    helpers = {
        "captured",
        "x",
        "reads",
        "moves",
        "settings_inside",
        "alone",
        "penalised",
        "install",
        "main",
    } | {"tell_of_modules"}
    more = ["exported loosely", "adamw_step"]
    for table, prefix in (("READS", "read by"), ("MOVES", "moved by"), ("SETTINGS", "set")):
        entries = next(
            node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == table
        )
        more += [f"{prefix} {key.value}" for key in entries.keys]
    return [f for f in functions if f not in helpers] + more


def observe(folder: Path, when: str) -> dict[str, object]:
    """Return what every scenario saw, without what differs between any two processes."""
    (folder / "journal").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, str(SCENARIOS), str(folder), when, str(INJECT)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(ADDRESS.sub("0x", SKIP_REASON.sub("skipped", MARK.sub("", done.stdout))))


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What was seen bare, with the probes from the start, and with the probes after a first compilation."""
    folder = tmp_path_factory.mktemp("compile")
    return {when: observe(folder / when, when) for when in ("bare", "before", "after")}


def test_all_scenarios_are_compared(observed) -> None:
    assert sorted(observed["bare"]) == sorted(names())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", names())
def test_the_compiler_sees_the_same_program(observed, name: str, when: str) -> None:
    if when == "after" and (name in ALWAYS_BEFORE or IS_OLD):
        pytest.skip("the recorder is never installed after a compilation")
    bare, recorded = observed["bare"][name], observed[when][name]
    if IS_OLD and (bare is None or str(bare).startswith("raised")):
        assert recorded == bare
        pytest.skip("this version of torch has no such thing")
    if name in FEWER_FRAMES:
        bare, recorded = with_failed_frames(bare), with_failed_frames(recorded)
    if IS_OLD:
        bare, recorded = without_reasons(bare), without_reasons(recorded)
    assert recorded == bare
    if name not in ("vmap_of_item",):
        assert not str(bare).startswith("raised"), "the scenario itself does not work"


def with_failed_frames(seen: Any) -> Any:
    """Return what a scenario saw, with how many frames failed instead of how many were looked at."""
    counters = dict(seen["counters"])
    frames = counters.pop("frames", {"total": 0, "ok": 0})
    return {**seen, "counters": counters, "failed_frames": frames["total"] - frames["ok"]}


def without_reasons(seen: Any) -> Any:
    """Return what a scenario saw, with the number of graph breaks instead of their reasons."""
    if isinstance(seen, dict) and "counters" in seen:
        breaks = sum(seen["counters"].get("graph_break", {}).values())
        seen = {**seen, "counters": [breaks, seen["counters"].get("stats")]}
    return json.loads(FUNCTION.sub(r"\1", json.dumps(seen)))
