"""A diagnosis made by hand, with everything in it that a report shows."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from perfwrap.diagnosis.model import (
    Diagnosis,
    LineAccount,
    LineCost,
    ModuleCost,
    RankFigures,
    StepFigures,
    Verdict,
)
from perfwrap.diagnosis.would_not_help import Unhelpful
from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.line_account import PARTS
from perfwrap.measures.recorder.own_cost import OwnCost
from perfwrap.reports.terminal import run_text
from perfwrap.reports.terminal.page import Page
from perfwrap.rules.model import Finding, Location, Option, Outcome

MS, SECOND = 1_000_000, 1_000_000_000
SCRIPT = """import torch

loader = DataLoader(Digits(), batch_size=64, shuffle=True)

for images, labels in loader:
    optimizer.zero_grad()
    loss = loss_function(model(images), labels)
    loss.backward()
    optimizer.step()
    for row in output.tolist():
        history.append(max(row))
"""


@pytest.fixture
def compare_sample(repository: Path) -> Callable[[str, str], None]:
    """A function that compares a text with a file of samples/reports.

    With PERFWRAP_UPDATE_SAMPLES=1 it writes the file: look at the difference before you commit it.
    """

    def compare(name: str, text: str) -> None:
        sample = repository / "tests" / "samples" / "reports" / name
        if os.environ.get("PERFWRAP_UPDATE_SAMPLES") == "1":
            sample.write_text(text, encoding="utf-8")
        assert text == sample.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The program that the findings point at."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@pytest.fixture
def diagnosis(script: Path) -> Diagnosis:
    """A slow loader, some Python, and a rule for every outcome."""
    slow = (
        "65 % of the training loop makes batches in the training process itself, "
        "in the DataLoader of train.py:3."
    )
    findings = (
        Finding(
            title=slow,
            share=0.6512,
            evidence=(
                "Each step waits 10 ms for its batch and takes 5.3 ms for all else (190 batches seen).",
            ),
            options=(
                Option(
                    "Pass num_workers=1 to the DataLoader at train.py:3.",
                    (0.4111, 0.7),
                    "10 ms per batch, 5.3 ms for the rest of the step, 2 cores",
                    "workers=1",
                ),
                Option(
                    "Cache the items of Digits.__getitem__.",
                    (0.6, 0.8),
                    "unchanged in 12 of 12 checks, 6 MiB",
                    "cached-batch",
                    "This needs 6 MiB.",
                ),
            ),
            location=Location(str(script), 3, "<module>"),
            confidence="inferred",
            rule="data_loader_single_process",
        ),
        Finding(
            title="6.7 % of the training loop is the program's own code in lines 9 to 11 of train.py.",
            share=0.067,
            evidence=("1 ms per step between the optimizer step and the batch.",),
            options=(Option("Look at the code in lines 9 to 11 of train.py.", (0.933, 0.9665)),),
            location=Location(str(script), 9, "<module>", 11),
            confidence="inferred",
            rule="python_overhead",
        ),
        Finding(
            "A note.",
            0.021,
            (),
            (Option("Nothing much.", (0.98, 0.99)),),
            rule="gc_pause",
        ),
        Finding(
            "Another note.",
            0.0,
            (),
            (Option("Stop.", (1.0, 1.0)),),
            health=True,
            rule="non_finite_loss",
        ),
    )
    return Diagnosis(
        verdict=Verdict("data-bound", 0.6512, f"Data-bound: {slow}", "inferred"),
        findings=findings,
        would_not_help=(
            Unhelpful(
                "Fewer .item() calls",
                "they take 0.4 % of the loop (1 per step)",
                ("defer-item",),
            ),
        ),
        outcomes=(
            Outcome("data_loader_single_process", "found"),
            Outcome("worker_restart", "clear", "No DataLoader with workers fed the training."),
            Outcome("thread_oversubscription", "not checked", "The host was not watched: psutil failed."),
            Outcome("slow_steps", "failed", "ZeroDivisionError: division by zero (slow_steps.py:33)"),
        ),
        account={
            "data": 651,
            "forward": 120,
            "backward": 130,
            "optimizer": 30,
            "sync": 0,
            "gc": 2,
            "python": 67,
        },
        steps=StepFigures(192, 190, 15.3 * MS, 17.1 * MS, 4180.4),
        ranks=(RankFigures("trainer", None, "here", 100, 192, 190, 15.3 * MS),),
        warnings=("The journal here-100 is damaged: 3 records were lost.",),
        perfwrap_cost=OwnCost(0, 400_000, 0.004, 0.002, 0.008, False, 570, 0.006, 65536),
        run={
            "command": ["python", "train.py", "--name", "two words"],
            "cwd": str(script.parent),
            "start": {"monotonic_ns": 0, "wall_ns": 0},
            "end": {"monotonic_ns": 12 * SECOND, "wall_ns": 4 * 10**18},
            "exit": {"code": 0},
        },
    )


@pytest.fixture
def line_account(script: Path) -> LineAccount:
    """A step of 10 ms: two blocks and a head, the optimizer, a loader, and operations of no known line."""

    def cost(line: int, function: str, **parts: float) -> LineCost:
        costs = dict.fromkeys(PARTS, 0.0) | {part: tenths * MS / 10 for part, tenths in parts.items()}
        return LineCost(Line(str(script), line, function), costs, 3, (("mm", 2), ("add", 1)))

    unknown = LineCost(Line("", 0), dict.fromkeys(PARTS, 0.0) | {"backward": 0.1 * MS}, 1, (("add_", 1),))
    model = cost(7, "<module>", forward=15, backward=45)
    model.shape, model.module = "float32[64, 10]", "Net.blocks.0.linear"
    return LineAccount(
        step_ns=10.0 * MS,
        bare_ns=10.5 * MS,
        lines=(
            model,
            cost(9, "<module>", optimizer=16, python=4),
            cost(5, "<module>", data=14),
            cost(11, "<module>", python=3),
            cost(11, "<listcomp>", forward=2),
            unknown,
        ),
        modules=(
            ModuleCost("Net.head", "Linear", 0.2 * MS, 0.4 * MS, 3),
            ModuleCost("Net.blocks.1", "Block", 0.1 * MS, 0.1 * MS, 2),
            ModuleCost("Net.blocks.1.linear", "Linear", 0.5 * MS, 1.5 * MS, 4),
            ModuleCost("Net.blocks.0", "Block", 0.1 * MS, 0.1 * MS, 2),
            ModuleCost("Net.blocks.0.linear", "Linear", 0.6 * MS, 2.4 * MS, 4),
        ),
        stacks={
            ("train.py:7 <module>", "model.py:3 Net.forward", "forward"): 1.5 * MS,
            ("train.py:7 <module>", "model.py:3 Net.forward", "backward"): 4.5 * MS,
            ("train.py:9 <module>", "optimizer"): 1.6 * MS,
            ("train.py:9 <module>", "python"): 0.4 * MS,
            ("train.py:5 <module>", "data"): 1.4 * MS,
            ("train.py:11 <module>", "python"): 0.3 * MS,
            ("train.py:11 <module>", "train.py:11 <listcomp>", "forward"): 0.2 * MS,
            ("backward",): 0.1 * MS,
        },
    )


class Drawn:
    """Draws a diagnosis as a terminal of a given width would show it."""

    def __call__(
        self, diagnosis: Diagnosis, width: int = 80, encoding: str = "utf-8", every: bool = False
    ) -> str:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        page = Page(stream, width)
        run_text.draw(diagnosis, Path("/runs/20260101-120000-train"), page, every)
        return page.text()


@pytest.fixture
def drawn() -> Drawn:
    """A function that draws a diagnosis."""
    return Drawn()
