"""What is taken of a run, before any exporter sees it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.commands.run_report import read
from perfwrap.diagnosis.model import Diagnosis, RankFigures, StepFigures, Verdict
from perfwrap.exporters import metrics, series
from perfwrap.exporters.export_model import Exported
from perfwrap.exporters.figures import find_figures
from perfwrap.exporters.naming import SUFFIXES, figure_path, series_path, shortened
from perfwrap.exporters.run_export import exported
from perfwrap.measures.steps.steps import STEP_COLUMNS
from perfwrap.rules.model import Finding, Option
from perfwrap.run_folder import RunFolder
from perfwrap.timeline.clocks import host_clock
from perfwrap.timeline.model import Timeline

from tests.wrapper.exporters.conftest import MS, SECOND, SLOW, STEPS, WALL

CLOCK = host_clock([(0, WALL)])
UNKNOWN = Verdict("unknown", None, "No verdict.", "none")


def figures(taken: Exported) -> dict[str, float]:
    found = {figure_path(figure).removeprefix("perfwrap_summary/"): figure.value for figure in taken.figures}
    assert len(found) == len(taken.figures)  # no two of one name
    return found


def test_the_figures_are_those_of_the_diagnosis(taken: Exported) -> None:
    known = figures(taken)
    assert known["steps"] == STEPS
    assert known["step_time_seconds/median"] == pytest.approx(0.1)
    assert known["run_duration_seconds"] == 8.0
    parts = {name: value for name, value in known.items() if name.startswith("account_ratio/")}
    assert sum(parts.values()) == pytest.approx(1.0)
    assert parts["account_ratio/data"] == pytest.approx(STEPS * 50 / (STEPS * 100 + 940), rel=0.05)
    assert known["finding_ratio/data_loader_single_process"] > 0.3
    assert known["gpu_utilization_ratio/gpu-0/mean"] == 0.5
    assert known["gpu_memory_used_bytes/gpu-0/max"] == 9e9
    assert known["host_cpu_busy_cores/mean"] == 2.0


def test_what_was_not_measured_is_absent(taken: Exported) -> None:
    named = {figure.metric for figure in taken.figures} | {one.metric for one in taken.series}
    assert not named & {metrics.GPU_POWER, metrics.GPU_MFU, metrics.GPU_BUSY, metrics.HOST_AVAILABLE}
    empty = find_figures(Diagnosis(UNKNOWN, steps=StepFigures(samples_per_s=math.nan)))
    assert {figure.metric for figure in empty} == {metrics.STEPS, metrics.STEADY_STEPS}


def test_findings_of_one_rule_are_reported_together_with_the_saving_of_the_costliest() -> None:
    first = Finding(
        "A.",
        0.3,
        (),
        (Option("B.", (0.7, 0.8)),),
        rule="host_sync_in_step",
    )
    second = replace(first, share=0.1, options=(Option("B.", (0.9, 0.95)),))
    reported = {
        (figure.metric.name, *figure.labels.values()): figure.value
        for figure in find_figures(Diagnosis(UNKNOWN, (first, second)))
    }
    assert reported["finding", "host_sync_in_step"] == pytest.approx(0.4)
    assert reported["finding_step_time", "host_sync_in_step", "low"] == 0.7
    assert reported["finding_step_time", "host_sync_in_step", "high"] == 0.8


def test_step_times_are_at_their_steps_and_moments(taken: Exported) -> None:
    steps = next(one for one in taken.series if one.metric is metrics.STEP_TIME)
    assert series_path(steps) == "perfwrap/step_time_seconds"
    assert steps.steps == tuple(range(STEPS))
    assert max(steps.values) == steps.values[SLOW] == pytest.approx(1.04)
    assert taken.begin_ns == WALL
    assert steps.time_ns[0] == WALL + 100 * MS
    assert all(taken.begin_ns <= time <= taken.end_ns for one in taken.series for time in one.time_ns)


def test_a_long_run_is_thinned_to_means_and_the_slowest_of_each_point() -> None:
    count = 1_234
    start = pl.int_range(count, eager=True) * 100
    table = pl.DataFrame(
        {
            "index": pl.int_range(count, eager=True),
            "start": start,
            "end": start + 100,
            "duration": [100] * count,
        }
    ).with_columns(
        pl.lit(True).alias("steady"), pl.lit(False).alias("windowed"), pl.lit(True).alias("detailed")
    )
    table = table.with_columns(
        pl.when(pl.col("index") == 700).then(900).otherwise("duration").alias("duration")
    )
    table = table.with_columns((pl.col("index") == 5).alias("windowed"))
    assert set(table.columns) <= set(STEP_COLUMNS)
    rank = RankFigures("trainer", None, "here", 1, count, count, 100)
    diagnosis = Diagnosis(UNKNOWN, ranks=(rank,), step_tables={1: table})
    found, _ = series.find_series(diagnosis, Timeline(), CLOCK)
    mean, slowest = found
    assert (mean.metric, slowest.metric) == (metrics.STEP_TIME, metrics.SLOWEST_STEP)
    assert len(mean.values) == len(slowest.values) <= series.MAX_POINTS
    assert max(slowest.values) == pytest.approx(900e-9)
    assert sum(mean.values) < sum(slowest.values)
    assert 5 not in mean.steps


def test_the_slowest_and_the_typical_steps_are_chosen_with_their_phases(taken: Exported) -> None:
    kinds = {step.number: step.why for step in taken.steps}
    assert kinds[SLOW] == "slow"
    assert sorted(kinds.values()).count("typical") == 5
    step = next(step for step in taken.steps if step.why == "typical")
    assert [phase.name for phase in step.phases] == ["data", "forward", "backward", "optimizer"]
    assert step.phases[0].place == "train.py:3"
    assert step.start_ns <= step.phases[0].start_ns < step.phases[-1].end_ns <= step.end_ns


def test_texts_are_clean_and_documents_go_along(taken: Exported, recorded: Path) -> None:
    assert taken.command == "python train.py --name '?'"
    assert set(taken.documents) == {"diagnosis.json", "report.md"}
    assert all(text.encode("utf-8") for text in taken.documents.values())
    assert taken.page is None
    (recorded / "report.html").write_text("<p>")
    assert exported(*read(recorded), RunFolder(recorded), "x").page == recorded / "report.html"


def test_a_run_without_steps_and_dates_is_exported_too(make_run: Any) -> None:
    run = make_run()
    run.journal(opened=SECOND).write()
    taken = exported(*read(run.folder.path), run.folder, "empty")
    assert (taken.verdict, taken.is_dated, taken.status) == ("unknown", False, "")
    assert taken.steps == taken.series == ()
    assert taken.end_ns >= taken.begin_ns > WALL // 2


def test_every_unit_has_its_word() -> None:
    assert {metric.unit for metric in metrics.METRICS} == set(SUFFIXES)
    assert len({metric.name for metric in metrics.METRICS}) == len(metrics.METRICS)
    assert shortened("abcdef", 4) == "abc…"
