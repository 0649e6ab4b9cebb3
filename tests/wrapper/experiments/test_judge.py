from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from perfwrap.experiments import judge, written
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import Made, Reading, Steps
from perfwrap.experiments.standstills import without_standstills
from perfwrap.experiments.trial import Run
from perfwrap.experiments.variants import parse

HERE = Path("/nowhere")


def steps(
    times_ms: Sequence[float] | float = 10.0, first: int = 10, count: int = 50, batch: int = 8
) -> Steps:
    durations = (
        np.array(times_ms, dtype=float) if isinstance(times_ms, Sequence) else np.full(count, times_ms)
    )
    numbers = np.arange(first, first + durations.size)
    # No clock gives the same value fifty times.
    jitter = 1 + 0.001 * np.sin(numbers)
    return Steps(numbers, (1e6 * durations * jitter).astype(np.int64), np.full(durations.size, batch))


def run(name: str, measured: Steps | None = None, loss: float | None = None, **more: object) -> Run:
    reading = Reading("measured", steps=measured or steps(), loss=loss, **more)  # type: ignore[arg-type]
    return Run(name, HERE, reading, 1.0)


def rows(runs: Sequence[Run], predicted: tuple[float, float] | None = None) -> dict[str, judge.Row]:
    planned = [
        Planned(parse(name), "a_rule", predicted)
        for name in dict.fromkeys(one.name for one in runs)
        if name != BASELINE
    ]
    return {row.name: row for row in judge.rows(runs, planned)}


def turns(name: str, times_ms: float, **more: object) -> list[Run]:
    base = [run(BASELINE, steps(time), loss=1.0) for time in (10.0, 10.1, 9.9)]
    other = [run(name, steps(times_ms * off), **more) for off in (1.0, 1.01)]  # type: ignore[arg-type]
    return [base[0], other[0], base[1], other[1], base[2]]


@pytest.mark.parametrize(
    ("time", "judgement"), [(5.0, "gain"), (10.05, "noise"), (9.9, "noise"), (15.0, "slower")]
)
def test_a_gain_is_distinguished_from_noise(time: float, judgement: str) -> None:
    row = rows(turns("workers=2", time))["workers=2"]
    assert row.judgement == judgement
    assert row.ratio is not None and row.ratio.value == pytest.approx(time / 10, rel=0.03)


def test_a_gain_that_is_sure_but_a_trifle_is_noise() -> None:
    exact = [run(BASELINE, steps(10.0)), run("none", steps(9.85))] * 2 + [run(BASELINE, steps(10.0))]
    row = rows(exact)["none"]
    assert row.ratio is not None and (row.ratio.high or 9) < 1
    assert row.judgement == "noise"


def test_the_first_run_fills_the_caches_and_does_not_count() -> None:
    cold = [run(BASELINE, steps(30.0)), *turns("workers=2", 5.0)[1:]]
    found = rows(cold)
    assert found["workers=2"].ratio is not None
    assert found["workers=2"].ratio.value == pytest.approx(0.5, rel=0.03)
    assert (found[BASELINE].runs, found[BASELINE].left_out) == (2, 0)
    # Without another one it does.
    assert rows(cold[:2])[BASELINE].runs == 1


def test_one_run_far_from_the_others_does_not_hide_a_gain() -> None:
    times = [("baseline", 49.0), ("none", 24.0), ("baseline", 49.2), ("none", 23.8), ("baseline", 23.0)]
    times += [("none", 24.1), ("baseline", 48.9)]
    found = rows([run(BASELINE), *(run(name, steps(time)) for name, time in times)])
    assert found[BASELINE].left_out == 1
    assert found["none"].judgement == "gain"
    assert found["none"].ratio is not None and (found["none"].ratio.high or 9) < 0.6


def test_two_slow_runs_do_not_make_the_fast_one_odd() -> None:
    """As measured while another program came and went: the change then seemed to be seven times slower."""
    times = [("none", 94.4), (BASELINE, 68.4), ("none", 101.0), (BASELINE, 14.0), ("none", 6.16)]
    times += [(BASELINE, 17.9)]
    found = rows([run(BASELINE, steps(49.1)), *(run(name, steps(time)) for name, time in times)])
    assert found["none"].left_out == 0
    assert found["none"].judgement == "noise"
    assert not judge.is_clear(found["none"])


def test_runs_that_all_differ_are_all_counted() -> None:
    times = [("baseline", 49.0), ("none", 24.0), ("baseline", 36.0), ("none", 33.0), ("baseline", 24.0)]
    times += [("none", 46.0)]
    found = rows([run(BASELINE), *(run(name, steps(time)) for name, time in times)])
    assert [found[name].left_out for name in (BASELINE, "none")] == [0, 0]
    assert found["none"].judgement == "noise"
    assert not judge.is_clear(found["none"])


@pytest.mark.parametrize("time", [5.0, 15.0, 10.0])
def test_a_result_is_clear_on_one_side_of_no_change_or_well_inside_of_it(time: float) -> None:
    base = [run(BASELINE, steps(10.0 * off)) for off in (1.0, 1.002, 0.998, 1.001)]
    other = [run("none", steps(time * off)) for off in (1.0, 1.002, 0.999)]
    found = rows([one for pair in zip(base, other, strict=False) for one in pair] + base[3:])
    assert judge.is_clear(found["none"])


def test_one_run_each_is_no_gain_yet() -> None:
    assert rows([run(BASELINE), run("workers=2", steps(1.0))])["workers=2"].judgement == "not repeated"


def test_runs_are_compared_over_the_steps_that_all_have() -> None:
    slow_start = [50.0] * 10 + [10.0] * 40
    runs = [
        run(BASELINE, steps(slow_start, first=0)),
        run("gc-freeze", steps(10.0, first=10, count=40)),
        run(BASELINE, steps(slow_start, first=0)),
    ]
    ratio = rows(runs)["gc-freeze"].ratio
    assert ratio is not None and ratio.value == pytest.approx(1.0, abs=0.01)


def test_other_batches_are_compared_by_the_sample() -> None:
    runs = [run(BASELINE), run("batch-size=16", steps(15.0, batch=16)), run(BASELINE)]
    row = rows(runs)["batch-size=16"]
    assert row.ratio is not None and row.ratio.value == pytest.approx(0.75, rel=0.01)
    assert row.samples_per_s == pytest.approx(16 / 0.015, rel=0.01)


def test_a_variant_that_failed_is_a_row_with_its_reason() -> None:
    failed = Run("compile", HERE, Reading("crashed", "exit code 1: no compiler"), 1.0)
    row = rows([run(BASELINE), failed, run(BASELINE)])["compile"]
    assert (row.status, row.judgement, row.reason) == ("crashed", "not measured", "exit code 1: no compiler")
    assert row.ratio is None


def test_the_fixes_that_gain_are_tried_together_the_best_of_each_and_nothing_else() -> None:
    base = run(BASELINE)
    several = {
        "workers=2": 6.0,
        "workers=4": 5.0,
        "gc-freeze": 8.0,
        "bf16": 3.0,
        "cached-batch": 2.0,
        "threads=2": 10.0,
    }
    runs = [base]
    for name, time in several.items():
        runs += [run(name, steps(time)), base]
    found = judge.rows(runs, [Planned(parse(name)) for name in several])
    together = judge.combination(found)
    assert together is not None and together.name == "workers=4+gc-freeze"
    best = judge.best(found)
    assert best is not None and best.name == "workers=4"


def test_one_fix_that_gains_is_no_combination() -> None:
    assert judge.combination(list(rows(turns("workers=2", 5.0)).values())) is None


@pytest.mark.parametrize(
    ("loss", "warned"), [(1.01, False), (0.97, False), (2.0, True), (float("nan"), True), (None, False)]
)
def test_a_loss_that_leaves_the_baselines_band_is_warned_of(loss: float | None, warned: bool) -> None:
    row = rows(turns("bf16", 5.0, loss=loss))["bf16"]
    assert bool(row.loss_warning) is warned


@pytest.mark.parametrize(
    ("predicted", "error"), [((0.4, 0.6), 0.0), ((0.6, 0.8), -0.1), ((0.1, 0.3), 0.2), (None, None)]
)
def test_the_error_of_a_prediction_is_the_way_to_its_range(
    predicted: tuple[float, float] | None, error: float | None
) -> None:
    found = rows(turns("workers=2", 5.0), predicted)["workers=2"].prediction_error
    assert found == (None if error is None else pytest.approx(error, abs=0.02))


def test_a_moment_in_which_the_machine_stood_still_is_not_the_programs() -> None:
    checkpoint = [10.0] * 20 + [200.0] + [10.0] * 29
    stood = checkpoint[:5] + [60_000.0] + checkpoint[6:]
    repaired = without_standstills([steps(checkpoint), steps(stood), steps(checkpoint)])
    assert repaired[1].duration_ns.max() == pytest.approx(200e6, rel=0.01)
    assert repaired[1].duration_ns.sum() == pytest.approx(repaired[0].duration_ns.sum(), rel=0.01)
    assert without_standstills([steps(stood)])[0].duration_ns.max() > 59e9


def test_a_checkpoint_that_only_the_baseline_has_still_costs_what_it_costs() -> None:
    checkpoint = steps([10.0] * 20 + [500.0] + [10.0] * 29)
    runs = [
        run(BASELINE, checkpoint),
        run("no-checkpoint"),
        run(BASELINE, checkpoint),
        run("no-checkpoint"),
        run(BASELINE, checkpoint),
    ]
    ratio = rows(runs)["no-checkpoint"].ratio
    assert ratio is not None and ratio.value == pytest.approx(500 / 990, rel=0.01)


def test_a_row_names_the_places_where_the_change_was_made() -> None:
    made = {"workers=2": Made("applied", "", (judge.Site("train.py", 1, "num_workers=0", "num_workers=2"),))}
    runs = turns("workers=2", 5.0, made=made)
    row = judge.rows(runs, [Planned(parse("workers=2"))])[1]
    assert row.sites == {"workers=2": made["workers=2"].sites}


def test_files_that_the_program_writes_are_named(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("as before")
    (tmp_path / "old.txt").write_text("removed later")
    (tmp_path / "runs").mkdir()
    before = written.look(tmp_path, tmp_path / "runs")
    (tmp_path / "old.txt").unlink()
    (tmp_path / "new.txt").write_text("x")
    (tmp_path / "runs" / "own.txt").write_text("perfwrap's own")
    assert written.compare(before, written.look(tmp_path, tmp_path / "runs")).changed == (
        "new.txt",
        "old.txt",
    )
    assert written.compare(before, None).unknown
