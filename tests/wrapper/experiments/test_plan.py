from __future__ import annotations

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.experiments import batch_size, plan
from perfwrap.experiments.batch_size import Fit
from perfwrap.experiments.changes import CEILING, FIX, NUMERICS
from perfwrap.experiments.variants import parse
from perfwrap.rules.model import Finding, Option


def finding(experiment: str | None, *others: str, informational: bool = False) -> Finding:
    worse = [Option("advice", (0.7, 0.8), experiment=other) for other in others]
    return Finding(
        "title",
        0.5,
        (),
        (Option("advice", (0.4, 0.6), experiment=experiment), *worse),
        informational=informational,
        rule=f"rule of {experiment}",
    )


def names(planned: tuple[plan.Planned, ...]) -> list[str]:
    return [one.variant.name for one in planned]


def test_a_variant_is_as_harmless_as_its_least_harmless_change() -> None:
    assert parse("workers=2+pin-memory").kind == FIX
    assert parse("workers=2+bf16").kind == NUMERICS
    assert parse("bf16+cached-batch").kind == CEILING
    assert parse("none").changes == ()


@pytest.mark.parametrize(
    "word", ["worker=2", "workers", "workers=two", "bf16=1", "workers=1+workers=2", "+", "none+bf16"]
)
def test_an_unknown_change_is_refused(word: str) -> None:
    with pytest.raises(PerfwrapError):
        parse(word)


def test_the_findings_say_what_is_tried_each_once_and_with_its_prediction() -> None:
    planned = plan.suggested(
        [
            finding("workers=2"),
            finding(None),
            finding("workers=2"),
            finding("three-run", informational=True),
            finding("gc-freeze"),
        ]
    )
    assert names(planned) == ["workers=2", "gc-freeze"]
    assert planned[0].predicted == (0.4, 0.6)
    assert planned[0].rule == "rule of workers=2"


def test_the_best_options_of_all_findings_are_tried_before_their_others() -> None:
    planned = plan.suggested([finding("workers=2", "cached-batch"), finding("find-batch-size", "gc-freeze")])
    assert names(planned) == ["workers=2", "cached-batch", "gc-freeze"]
    assert [one.predicted for one in planned] == [(0.4, 0.6), (0.7, 0.8), (0.7, 0.8)]


def test_a_trial_does_not_grow_without_end() -> None:
    planned = plan.suggested([finding(f"workers={count}", f"prefetch={count}") for count in range(1, 9)])
    assert names(planned) == [f"workers={count}" for count in range(1, 9)]


def test_an_experiment_that_no_change_makes_is_left_out() -> None:
    assert plan.suggested([finding("buy-a-faster-disk"), finding("threads=2")])[0].variant.name == "threads=2"


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [0, 1, 2]), (2, [0, 1, 2]), (4.5, [0, 1, 2, 4]), (64, [0, 1, 2, 4, 8, 12])]
)
def test_the_sweep_of_workers_stays_within_the_processors(cores: float, counts: list[int]) -> None:
    assert names(plan.preset("workers", cores)) == [f"workers={count}" for count in counts]


def test_every_preset_can_be_run_and_an_unknown_one_names_them() -> None:
    for name in plan.PRESETS:
        assert plan.preset(name, 64)
    with pytest.raises(PerfwrapError) as refused:
        plan.preset("all", 4)
    assert "three-run" in refused.value.hint


@pytest.mark.parametrize("limit", [33, 64, 100, 1023])
def test_the_search_ends_close_to_the_largest_batch_that_fits(limit: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> Fit:
        tried.append(size)
        return Fit(True) if size <= limit else Fit(False, "out of memory")

    found = batch_size.find(32, None, fits)
    assert found.largest <= limit
    assert found.smallest is not None and found.smallest > limit
    assert found.smallest - found.largest <= max(1, found.smallest * batch_size.CLOSE_ENOUGH)
    assert found.advised <= 0.9 * found.largest
    assert found.reason == "out of memory"
    assert len(tried) == len(set(tried)) < 12


def test_the_data_set_ends_the_search_too_and_needs_no_margin() -> None:
    found = batch_size.find(32, 100, lambda size: Fit(True))
    assert (found.largest, found.smallest, found.advised) == (100, None, 100)
    assert "no more samples" in found.reason


@pytest.mark.parametrize("known", [0, 1, 3])
def test_a_search_that_ends_early_says_what_fits_and_never_that_a_size_does_not(known: int) -> None:
    answers = iter([*[Fit(True)] * known, Fit(None, "larger sizes were not tried")])
    found = batch_size.find(8, None, lambda size: next(answers))
    assert (found.largest, found.smallest, found.reason) == (8 << known, None, "larger sizes were not tried")
    answers = iter(
        [*[Fit(True)] * known, Fit(False, "out of memory"), Fit(None, "larger sizes were not tried")]
    )
    found = batch_size.find(8, None, lambda size: next(answers))
    assert (found.largest, found.smallest, found.reason) == (8 << known, 16 << known, "out of memory")
