"""The share that a verdict states is the one that the account shows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Verdict
from perfwrap.diagnosis.verdict import PARTS_OF_KIND
from perfwrap.rules.model import Finding, Option, Rule, Scope

MS = 1_000_000
NET = 3

LENGTHS = st.sampled_from([0.0, 0.5, 2.0, 6.0, 30.0])


def write(
    run: Any,
    *,
    data: float = 0,
    python: float = 0,
    read: float = 0,
    loss: float = 0,
    validation: float = 0,
    saved: float = 0,
    collected: float = 0,
) -> None:
    """Write 40 steps of 10 ms model work, with so many milliseconds of the rest in each; validation in every tenth."""
    journal = run.journal(pid=100, opened=1_000 * MS)
    journal.fact("loader/1/num_workers", 0)
    for step in range(40):
        if data:
            journal.span("data", round(data * MS), "loader/1", 32, "train.py:20:main")
        journal.python(round(python * MS))
        journal.span("forward", 4 * MS, "Net", NET, "train.py:21:main")
        journal.python(round(loss * MS))
        journal.span("backward", 5 * MS, line="train.py:23:main")
        journal.span("optimizer", MS, "SGD#1", line="train.py:24:main")
        if read:
            journal.span("sync", round(read * MS), "Tensor.tolist", 0, "train.py:26:main")
        if collected:
            journal.span("gc", round(collected * MS), "2", 0)
        if saved and step % 5 == 4:
            journal.span("save", round(5 * saved * MS), line="train.py:28:main")
        if validation and step % 10 == 9:
            journal.span("loader_start", MS, "loader/2", 0, "train.py:30:main")
            for _ in range(10):
                journal.span("forward", round(validation * MS), "Net", 0, "train.py:31:main")
            journal.span("data_end", MS, "loader/2", 0, "train.py:30:main")


def claiming(name: str, share: float, part: str, verdict: str | None = None, **more: Any) -> Rule:
    """Return a rule that finds a share of a part."""
    found = Finding(
        f"It takes {100 * share:.0f} %.",
        share,
        (),
        (Option("Fix it.", (1 - share, 1.0)),),
        verdict=verdict,
        claims=None if not part else pl.col("part") == part,
        **more,
    )
    return SimpleNamespace(  # type: ignore[return-value]
        __name__=f"perfwrap.rules.{name}",
        __doc__="A problem.",
        NEEDS=(),
        Limits=dict,
        check=lambda evidence, trainer, limits: [found],
    )


def judged(run: Any, *rules: Rule) -> Verdict:
    return diagnose(run.read(), rules).verdict


def test_what_is_left_of_a_finding_is_not_the_share_of_the_verdict(run: Any) -> None:
    write(run, data=10)
    first = claiming("first", 0.38, "data")
    verdict = judged(
        run, first, claiming("second", 0.5, "data", "data-bound"), claiming("third", 0.12, "", "data-bound")
    )
    assert verdict.id == "data-bound"
    assert verdict.share == pytest.approx(0.5)
    assert (
        verdict.sentence
        == "Data-bound: 50 % of the training loop waits for batches. Largest finding: It takes 12 %."
    )


def test_a_finding_that_is_the_whole_part_is_not_stated_twice(run: Any) -> None:
    write(run, data=10)
    verdict = judged(run, claiming("only", 0.5, "data", "data-bound"))
    assert verdict.sentence == "Data-bound: It takes 50 %."


def test_all_of_the_models_work_is_the_share_of_compute_bound(run: Any) -> None:
    write(run, python=2)
    verdict = judged(run, claiming("in_vain", 0.4, "backward", "compute-bound"))
    assert verdict.share == pytest.approx(10 / 12, abs=0.01)
    assert (
        verdict.sentence
        == "Compute-bound: 84 % of the training loop is model work. Largest finding: It takes 40 %."
    )


def test_a_problem_of_the_model_comes_before_the_note_that_the_model_dominates(run: Any) -> None:
    write(run)
    note = claiming("note", 0.9, "forward", "compute-bound", informational=True)
    problem = claiming("problem", 0.3, "", "compute-bound")
    assert judged(run, problem, note).sentence.endswith("is model work. Largest finding: It takes 30 %.")
    small = claiming("small", 0.03, "", "compute-bound")
    assert "It takes" not in judged(run, small, note).sentence


def test_checkpoints_and_validation_are_named_where_both_take_time(run: Any) -> None:
    write(run, validation=5, saved=5)
    verdict = judged(run, claiming("saving", 0.15, "checkpoint", "checkpoint/validation-bound"))
    assert "is validation and checkpoints. Largest finding: It takes 15 %." in verdict.sentence


def test_checkpoints_alone_are_called_so(run: Any) -> None:
    write(run, saved=10)
    verdict = judged(run, claiming("saving", 0.3, "checkpoint", "checkpoint/validation-bound"))
    assert verdict.sentence.startswith(
        "Checkpoint- or validation-bound: 50 % of the training loop is checkpoints."
    )


def test_a_small_finding_beside_a_large_part_without_a_cause_is_no_verdict(run: Any) -> None:
    write(run, data=60, python=15)
    verdict = judged(run, claiming("code", 0.17, "python", "python-bound"))
    assert (verdict.id, verdict.share) == ("unknown", None)
    assert verdict.sentence == (
        "No verdict: 71 % of the training loop waits for batches, and no rule found the cause. Largest finding: It "
        "takes 17 %."
    )


def test_a_finding_about_the_larger_part_is_the_verdict_even_if_it_is_milder(run: Any) -> None:
    write(run, data=60, python=15)
    mild = claiming("mild", 0.7, "data", "data-bound", max_severity="minor")
    assert judged(run, claiming("code", 0.17, "python", "python-bound"), mild).id == "data-bound"


def test_a_part_that_is_not_much_larger_leaves_the_verdict(run: Any) -> None:
    write(run, data=30, python=15)
    assert judged(run, claiming("code", 0.27, "python", "python-bound")).id == "python-bound"


@pytest.mark.parametrize("more", [{"of_job": True}, {"scope": Scope.WINDOW}])
def test_a_finding_that_is_not_about_parts_of_this_loop_is_not_compared_with_them(
    run: Any, more: dict[str, Any]
) -> None:
    write(run, data=60, python=15)
    assert judged(run, claiming("code", 0.17, "python", "python-bound", **more)).id == "python-bound"


def test_a_finding_about_another_part_keeps_its_own_share(run: Any) -> None:
    write(run, python=10, collected=5)
    verdict = judged(run, claiming("gc_pause", 0.2, "gc", "python-bound"))
    assert (verdict.share, verdict.sentence) == (0.2, "Python-bound: It takes 20 %.")


def test_findings_that_explain_more_than_the_part_are_summed(run: Any) -> None:
    write(run, python=10, collected=5)
    rules = (claiming("code", 0.4, "python", "python-bound"), claiming("gc_pause", 0.2, "gc", "python-bound"))
    verdict = judged(run, *rules)
    assert verdict.share == pytest.approx(0.6)
    assert verdict.sentence == "Python-bound: It takes 40 %. Together with 1 similar finding: 60 %."


def test_the_largest_other_part_of_a_healthy_loop_is_named(run: Any) -> None:
    write(run, python=3)
    assert ", 23 % is Python code outside the model; no other problem found." in judged(run).sentence


def test_small_other_parts_of_a_healthy_loop_are_not_named(run: Any) -> None:
    write(run, python=0.5)
    assert judged(run).sentence == "Healthy: 95 % of the training loop is model work; no other problem found."


def test_the_account_of_all_ranks_is_the_base_where_only_some_were_read(run: Any) -> None:
    write(run, data=10)
    timeline = run.read()
    whole = {**diagnose(timeline, ()).account}
    whole["backward"] += sum(whole.values())
    verdict = diagnose(timeline, (claiming("only", 0.2, "data", "data-bound"),), account=whole).verdict
    assert verdict.share == pytest.approx(0.25, abs=0.01)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.fixed_dictionaries(
        dict.fromkeys(("data", "python", "read", "loss", "validation", "saved", "collected"), LENGTHS)
    )
)
def test_no_loop_has_a_verdict_that_contradicts_its_account(
    make_run: Callable[[], Any], lengths: dict[str, float]
) -> None:
    """The fixture that checks each diagnosis would find it, too; here the parts are also those that were written."""
    run = make_run()
    write(run, **lengths)
    diagnosis = diagnose(run.read())
    verdict, total = diagnosis.verdict, sum(diagnosis.account.values())
    if verdict.id in PARTS_OF_KIND:
        part = sum(diagnosis.account[name] for name in PARTS_OF_KIND[verdict.id]) / total
        others = diagnosis.account["gc"] / total if verdict.id == "python-bound" else 0.0
        assert part - others - 0.001 <= verdict.share <= part + others + 0.001
    elif verdict.id == "healthy":
        assert verdict.share == pytest.approx(
            sum(diagnosis.account[name] for name in PARTS_OF_KIND["compute-bound"]) / total
        )
