from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.model import Answer, Clear, Finding, Rule, Scope
from perfwrap.rules.run import slow_start as rule
from perfwrap.timeline.coverage import RECORDER

SECOND = 1_000


def write(loop: Any, start: float, steps: int = 100) -> None:
    loop.span("import", 1.5 * SECOND, "torch")
    loop.python(start)
    for _ in range(steps):
        loop.compute(40, 50, 10)


def test_a_long_start_is_found_as_a_part_of_the_run(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, start=20 * SECOND)
    finding = find(rule)
    assert 0.5 < finding.share < 0.7
    assert finding.scope is Scope.RUN
    assert finding.severity == "minor"
    assert "the program's own code" in finding.sentence
    assert finding.saving == (1.0, 1.0)


def test_it_never_gives_the_verdict(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, start=20 * SECOND)
    assert diagnosis().verdict.id == "compute-bound"


def test_importing_torch_is_not_the_programs_fault(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.span("import", 20 * SECOND, "torch")
    for _ in range(100):
        loop.compute(40, 50, 10)
    assert isinstance(ask(rule), Clear)


def test_a_short_start_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, start=SECOND)
    assert isinstance(ask(rule), Clear)


def test_a_start_before_long_training_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, start=6 * SECOND, steps=1000)
    assert isinstance(ask(rule), Clear)


def test_without_steps_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    loop.span("import", 20 * SECOND, "torch")
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["slow_start"]
    assert outcome.state == "not checked"


def sampled(run: Any, importing_s: int, package: str, launch_s: int = 0) -> Answer:
    """Ask the rule about a run of which py-spy saw the first seconds importing a package, then own code.

    With ``launch_s``, the command was launched so long before its process started.
    """
    timeline = run.read()
    if launch_s:
        edges = timeline.coverage.filter(pl.col("what") == RECORDER)
        launch = int(edges["start"].min()) - launch_s * 1_000_000_000  # type: ignore[arg-type]
        whole = {"start": {"monotonic_ns": launch}, "end": {"monotonic_ns": int(edges["end"].max())}}  # type: ignore[arg-type]
        timeline = replace(timeline, run={**timeline.run, **whole})
    thread = timeline.spans["track"][0]
    imports = f"<module> (train.py:1);<module> (/x/site-packages/{package}/__init__.py:3);_find (<frozen importlib>:9)"
    begin = int(timeline.spans.filter(pl.col("operation") == "import")["start"].min())
    rows = [
        {
            **dict.fromkeys(timeline.stacks.columns),
            "time": begin + number * 100_000_000,
            "track": thread,
            "source": "py-spy",
            "stack": imports if is_import else "main (train.py:30)",
            "file": None if is_import else "train.py",
            "line": None if is_import else 30,
            "function": None if is_import else "main",
            "weight": 1,
        }
        for number in range(400)
        for is_import in [number < importing_s * 10]
    ]
    stacks = pl.DataFrame(rows, schema=timeline.stacks.schema)
    evidence = Evidence(replace(timeline, stacks=stacks))
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    return rule.check(evidence, trainer, rule.Limits())


@pytest.mark.parametrize(("steps", "counts"), [(100, True), (400, False)])
def test_imports_count_only_if_they_are_most_of_the_run(
    loop: Any, run: Any, steps: int, counts: bool
) -> None:
    write(loop, start=20 * SECOND, steps=steps)
    found = sampled(run, 18, "monai")
    if counts:
        assert isinstance(found, list)
        assert "of it in importing other packages" in found[0].sentence
    else:
        assert isinstance(found, Clear)


@pytest.mark.parametrize(("launch_s", "counts"), [(40, True), (1, False)])
def test_imports_count_if_the_verdict_is_start_up_bound(
    loop: Any, run: Any, launch_s: int, counts: bool
) -> None:
    write(loop, start=20 * SECOND, steps=400)
    assert isinstance(sampled(run, 18, "monai", launch_s), list) == counts


@pytest.mark.parametrize(
    ("launch_s", "words"), [(40, "of the time of this process"), (1, "of the whole run")]
)
def test_a_share_of_a_process_of_a_longer_run_is_not_of_the_run(
    loop: Any, run: Any, launch_s: int, words: str
) -> None:
    write(loop, start=20 * SECOND)
    found = sampled(run, 4, "monai", launch_s)
    assert isinstance(found, list)
    assert words in found[0].evidence[0]


def test_the_program_s_own_start_counts_without_imports(loop: Any, run: Any) -> None:
    write(loop, start=20 * SECOND)
    found = sampled(run, 4, "monai")
    assert isinstance(found, list)
    assert found[0].share == pytest.approx(17.5 / 31.5, abs=0.03)
    assert "the program's own code (dataset, model)" in found[0].sentence
