from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from perfwrap.diagnosis.engine import _asides, diagnose
from perfwrap.diagnosis.model import Diagnosis, Verdict
from perfwrap.journal_format import SPANS
from perfwrap.measures.account.what_if import with_margin
from perfwrap.rules import RULES
from perfwrap.rules.data_loading import data_loader_single_process
from perfwrap.rules.model import Clear, Finding, Location, NotChecked, Option, Rule, Scope, rule_id
from perfwrap.timeline.model import Timeline

MS = 1_000_000
NET = 3


def write_step(journal: Any, data: float = 0, python: float = 0) -> None:
    if data:
        journal.span("data", round(data * MS), "loader/1", 32, "train.py:20:main")
    journal.python(round(python * MS))
    journal.span("forward", 4 * MS, "Net", NET, "train.py:21:main")
    journal.span("backward", 5 * MS, line="train.py:23:main")
    journal.span("optimizer", MS, "SGD#1", line="train.py:24:main")


def write(run: Any, steps: int = 40, pid: int = 100, data: float = 0, python: float = 0, **facts: Any) -> Any:
    journal = run.journal(pid=pid, opened=1_000 * MS, **facts)
    journal.fact("loader/1/num_workers", 0)
    for _ in range(steps):
        write_step(journal, data, python)
    return journal


class NoLimits(Struct, frozen=True):
    pass


def rule(name: str, answer: Callable[[], Any]) -> Rule:
    """Return a rule that answers so; a module in all that matters."""
    return SimpleNamespace(  # type: ignore[return-value]
        __name__=f"perfwrap.rules.{name}",
        __doc__="A problem.",
        NEEDS=(),
        Limits=NoLimits,
        check=lambda evidence, trainer, limits: answer(),
    )


def finding(share: float, part: str = "", **more: Any) -> Finding:
    claims = pl.col("part") == part if part else None
    return Finding(
        f"It takes {share}.",
        share,
        (),
        (Option("Mend it.", (1 - share, 1.0)),),
        claims=claims,
        **more,
    )


def fail() -> None:
    raise ZeroDivisionError("by nothing")


def test_the_finding_that_gains_most_gives_the_verdict(run: Any) -> None:
    write(run, data=20, python=4)
    diagnosis = diagnose(run.read())
    assert diagnosis.verdict.id == "data-bound"
    assert diagnosis.verdict.share == pytest.approx(20 / 34, abs=0.01)
    assert [found.rule for found in diagnosis.findings] == ["data_loader_single_process", "python_overhead"]
    assert diagnosis.verdict.sentence.startswith("Data-bound: 59 %")


def test_every_rule_has_an_outcome_in_the_order_of_the_list(run: Any) -> None:
    write(run)
    assert [outcome.rule for outcome in diagnose(run.read()).outcomes] == [rule_id(rule) for rule in RULES]


def test_a_rule_that_raises_costs_only_its_own_answer(run: Any) -> None:
    write(run)
    diagnosis = diagnose(run.read(), (rule("broken", fail), rule("whole", lambda: [finding(0.3, "forward")])))
    broken, whole = diagnosis.outcomes
    assert (broken.state, whole.state) == ("failed", "found")
    assert "ZeroDivisionError: by nothing" in broken.why
    assert [found.rule for found in diagnosis.findings] == ["whole"]


def test_a_broken_timeline_is_no_crash() -> None:
    diagnosis = diagnose(Timeline(spans=pl.DataFrame({"nonsense": [1]})))
    assert diagnosis.verdict.id == "unknown"
    assert "report it" in diagnosis.verdict.sentence


def test_findings_are_ordered_by_severity_and_then_by_gain_those_of_the_run_last(run: Any) -> None:
    write(run)
    shares = {"small": 0.04, "large": 0.3, "of_the_run": 0.5, "middling": 0.08}
    scopes = {name: Scope.RUN if name == "of_the_run" else Scope.LOOP for name in shares}
    rules = [
        rule(name, lambda share=share, scope=scopes[name]: [finding(share, scope=scope)])  # type: ignore[misc]
        for name, share in shares.items()
    ]
    found = diagnose(run.read(), rules).findings
    assert [one.rule for one in found] == ["large", "middling", "small", "of_the_run"]
    assert [one.severity for one in found] == ["critical", "minor", "note", "minor"]


def test_a_sure_gain_is_before_one_that_may_be_nothing(run: Any) -> None:
    write(run, data=8, python=9)
    doubtful = rule("doubtful", lambda: [finding(0.25, "python", verdict="throttled")])
    sure = replace(finding(0.22, "data", verdict="data-bound"), options=(Option("Mend it.", (0.78, 0.82)),))
    small = replace(
        finding(0.15, "backward", verdict="python-bound"), options=(Option("Mend it.", (0.85, 0.85)),)
    )
    rules = (doubtful, rule("sure", lambda: [sure]), rule("small", lambda: [small]))
    diagnosis = diagnose(run.read(), rules)
    assert [found.rule for found in diagnosis.findings] == ["sure", "doubtful", "small"]
    assert diagnosis.verdict.id == "data-bound"


def test_what_may_be_nothing_at_all_gives_the_verdict_to_what_is_sure(run: Any) -> None:
    write(run, data=8, python=9)
    doubtful = rule("doubtful", lambda: [finding(0.6, "python", verdict="throttled", max_severity="minor")])
    sure = rule("sure", lambda: [finding(0.12, "data", verdict="data-bound")])
    diagnosis = diagnose(run.read(), (doubtful, sure))
    assert [found.rule for found in diagnosis.findings] == ["sure", "doubtful"]
    assert diagnosis.verdict.id == "data-bound"


def test_no_time_is_sold_twice(run: Any) -> None:
    write(run, data=10)
    first = rule("first", lambda: [finding(0.5, "data")])
    second = rule("second", lambda: [finding(0.5, "data")])
    diagnosis = diagnose(run.read(), (first, second))
    assert [found.rule for found in diagnosis.findings] == ["first"]
    assert diagnosis.outcomes[1].state == "clear"
    assert diagnosis.outcomes[1].why == "Explained by first."


def test_pictures_give_time_to_the_finding_that_claimed_it(run: Any) -> None:
    write(run, data=10)
    first = rule("first", lambda: [finding(0.2, "data")])
    both = pl.col("part").is_in(["data", "backward"])
    second = rule(
        "second",
        lambda: [
            Finding(
                "It takes.",
                0.75,
                (),
                (Option("Mend it.", (0.25, 0.5)),),
                claims=both,
            )
        ],
    )
    diagnosis = diagnose(run.read(), (first, second), overview=True)
    assert [found.rule for found in diagnosis.findings] == ["second", "first"]
    assert diagnosis.overview is not None
    backward, data = (frame["ns"].sum() for frame in diagnosis.overview.claims)
    (claimed,) = diagnosis.claimed.values()
    lengths = claimed.group_by("rule").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    assert dict(lengths.iter_rows()) == pytest.approx({"first": data, "second": backward}, rel=0.1)
    assert data > backward > 0


def test_what_is_left_of_a_finding_keeps_its_own_part(run: Any) -> None:
    write(run, data=10)
    first = rule("first", lambda: [finding(0.5, "data")])
    both = pl.col("part").is_in(["data", "backward"])
    second = rule(
        "second",
        lambda: [
            Finding(
                "It takes.",
                0.75,
                (),
                (Option("Mend it.", (0.25, 0.5)),),
                claims=both,
            )
        ],
    )
    diagnosis = diagnose(run.read(), (first, second))
    left = diagnosis.findings[1]
    assert left.rule == "second"
    assert left.share == pytest.approx(0.25, abs=0.01)
    assert left.saving == pytest.approx(with_margin((0.75, 1.0)), abs=0.01)


def good_end(line: int | None) -> Finding:
    where = None if line is None else Location("net.py", line, "normalise")
    good = finding(0.9, "backward", verdict="compute-bound", informational=True, location=where)
    return replace(good, claims=pl.col("part").is_in(["backward", "forward"]))


@pytest.mark.parametrize(("line", "rules"), [(51, ["first", "compute_bound"]), (None, ["first"])])
def test_compute_bound_yields_to_a_problem_inside_it_but_keeps_a_line_that_only_it_names(
    run: Any, line: int | None, rules: list[str]
) -> None:
    write(run)
    first = rule("first", lambda: [finding(0.08, "forward", verdict="python-bound")])
    diagnosis = diagnose(run.read(), (first, rule("compute_bound", lambda: [good_end(line)])))
    assert [found.rule for found in diagnosis.findings] == rules
    assert diagnosis.verdict.id == "healthy"
    assert ("hottest line: net.py:51" in diagnosis.verdict.sentence) == (line is not None)


def test_a_function_that_a_problem_names_is_not_reported_as_healthy(run: Any) -> None:
    write(run)
    first = rule("first", lambda: [finding(0.08, "forward", location=Location("net.py", 40, "normalise"))])
    diagnosis = diagnose(run.read(), (first, rule("compute_bound", lambda: [good_end(51)])))
    assert [found.rule for found in diagnosis.findings] == ["first"]


def test_a_note_with_a_small_share_leaves_the_verdict_compute_bound(run: Any) -> None:
    write(run, steps=100)
    little = pl.col("step").is_in([50, 51, 52, 53, 54, 55]) & (pl.col("part") == "forward")
    first = rule("first", lambda: [replace(finding(0.03), claims=little)])
    diagnosis = diagnose(run.read(), (first, rule("compute_bound", lambda: [good_end(None)])))
    assert [found.rule for found in diagnosis.findings] == ["compute_bound", "first"]
    assert diagnosis.verdict.id == "compute-bound"


def test_health_is_shown_even_when_its_time_is_taken(run: Any) -> None:
    write(run, data=10)
    first = rule("first", lambda: [finding(0.5, "data")])
    second = rule("second", lambda: [finding(0.5, "data", health=True)])
    assert len(diagnose(run.read(), (first, second)).findings) == 2


def test_several_findings_of_a_kind_give_one_verdict_together(run: Any) -> None:
    write(run, data=2)
    rules = (
        rule("one", lambda: [finding(0.07, "data", verdict="data-bound")]),
        rule("two", lambda: [finding(0.06, "optimizer", verdict="data-bound")]),
        rule("three", lambda: [finding(0.09, "forward", verdict="python-bound")]),
    )
    verdict = diagnose(run.read(), rules).verdict
    assert (verdict.id, verdict.share) == ("data-bound", pytest.approx(2 / 12))
    assert "Together with 1 similar finding: 13 %." in verdict.sentence


def test_an_expensive_loss_is_not_called_healthy(run: Any) -> None:
    journal = run.journal(opened=1_000 * MS)
    for _ in range(40):
        journal.span("forward", 4 * MS, "Net", NET, "train.py:21:main")
        journal.python(2 * MS)
        journal.span("backward", 4 * MS, line="train.py:23:main")
        journal.span("optimizer", MS, "SGD#1", line="train.py:24:main")
    diagnosis = diagnose(run.read())
    assert diagnosis.verdict.id == "python-bound"
    assert [found.rule for found in diagnosis.findings] == ["python_overhead"]


def test_a_loop_without_a_large_problem_is_healthy(run: Any) -> None:
    write(run)
    verdict = diagnose(
        run.read(), (rule("small", lambda: [finding(0.04, "optimizer", verdict="data-bound")]),)
    ).verdict
    assert verdict.id == "healthy"
    assert "small" in verdict.sentence


@pytest.mark.parametrize(
    ("utilization", "words"),
    [(None, "GPU utilization was not recorded"), (0.4, "busy in only 40 % of the samples")],
)
def test_on_a_gpu_nothing_is_called_healthy_without_evidence_of_the_gpu(
    run: Any, utilization: float | None, words: str
) -> None:
    journal = write(run, **{"model/Net/device": "cuda:0"})
    if utilization is not None:
        run.journal(pid=999, role="monitor").sample("gpu/0", "utilization_share", utilization, journal.now)
    verdict = diagnose(run.read()).verdict
    assert verdict.id == "unknown"
    assert words in verdict.sentence


def test_a_device_without_a_monitor_is_named(run: Any) -> None:
    write(run, **{"model/Net/device": "openreg:0", "device_type": "openreg"})
    verdict = diagnose(run.read()).verdict
    assert verdict.id == "unknown"
    assert "no monitor for the device (openreg)" in verdict.sentence


def test_a_gpu_in_the_machine_does_not_matter_to_training_on_the_cpu(run: Any) -> None:
    journal = write(run, **{"model/Net/device": "cpu"})
    run.journal(pid=999, role="monitor").sample("gpu/0", "utilization_share", 0.0, journal.now)
    assert diagnose(run.read()).verdict.id == "compute-bound"


def test_rules_about_gpus_say_that_the_model_ran_on_the_cpu(run: Any) -> None:
    write(run, **{"model/Net/device": "cpu"})
    outcomes = {outcome.rule: outcome for outcome in diagnose(run.read()).outcomes}
    assert outcomes["launch_bound"].state == "not checked"
    assert outcomes["launch_bound"].why == "The model ran on the CPU."


def test_a_verdict_never_sums_what_may_be_the_same_time(run: Any) -> None:
    write(run)
    exchanged = {"verdict": "communication-bound"}
    rules = [rule(name, lambda: [finding(0.3, **exchanged)]) for name in ("late", "alone", "in_vain")]
    verdict = diagnose(run.read(), rules).verdict
    assert verdict.id == "communication-bound"
    assert verdict.share == pytest.approx(0.3)
    assert "more of this kind" not in verdict.sentence


def test_a_note_on_the_gpu_alone_gives_no_verdict_on_few_steps(run: Any) -> None:
    write(run, steps=4)
    note = rule("note", lambda: [finding(0.3, scope=Scope.WINDOW)])
    assert "steady step" in diagnose(run.read(), (note,)).verdict.sentence


@pytest.mark.parametrize(("steps", "words"), [(8, "only 8 steady steps"), (1, "only 1 steady step ")])
def test_thin_evidence_gives_no_verdict_but_says_why(run: Any, steps: int, words: str) -> None:
    write(run, steps=steps)
    verdict = diagnose(run.read()).verdict
    assert (verdict.id, verdict.share, verdict.confidence) == ("unknown", None, "none")
    assert words in verdict.sentence


def test_many_steps_that_vary_too_much_are_not_said_to_be_few(run: Any) -> None:
    journal = write(run, steps=25)
    journal.python(600 * MS)
    write_step(journal)
    result = diagnose(run.read())
    words = "steady steps take less than 2 s together and vary too much. Train longer."
    assert words in result.verdict.sentence
    assert "only" not in result.verdict.sentence
    assert any(words in outcome.why for outcome in result.outcomes)


def test_a_run_of_which_nothing_was_recorded_gives_no_verdict(run: Any) -> None:
    diagnosis = diagnose(run.read())
    assert diagnosis.verdict.id == "unknown"
    assert "doctor" in diagnosis.verdict.sentence
    assert {outcome.state for outcome in diagnosis.outcomes} == {"not checked"}


def test_a_run_that_imported_torch_and_trained_nothing_gives_no_verdict(run: Any) -> None:
    run.journal(opened=1_000 * MS).span("import", 900 * MS, "torch")
    sentence = diagnose(run.read()).verdict.sentence
    assert "none trained" in sentence
    assert "Ray" not in sentence


@pytest.mark.parametrize("sign", ["a cluster's address", "a worker"])
def test_of_a_run_in_which_nothing_trained_it_says_that_workers_of_ray_may_have(run: Any, sign: str) -> None:
    argv = "python\x1f/site-packages/ray/_private/workers/setup_worker.py" if sign == "a worker" else "python"
    run.journal(opened=1_000 * MS, argv=argv).span("import", 900 * MS, "torch")
    environment = {} if sign == "a worker" else {"RAY_ADDRESS": "127.0.0.1:6379"}
    run.folder.write_manifest({"command": ["python", "train.py"], "environment": environment})
    assert "If Ray's workers trained, they were not recorded" in diagnose(run.read()).verdict.sentence


def test_a_run_without_torch_gives_no_verdict(run: Any) -> None:
    run.start(pid=100)
    run.start(pid=101)
    sentence = diagnose(run.read()).verdict.sentence
    assert "2 Python processes" in sentence
    assert "it never imported torch" in sentence


def test_a_recorder_that_could_not_start_is_the_reason(run: Any) -> None:
    run.start(pid=100)
    monitor = run.journal(pid=999, role="monitor")
    why = monitor.text("could not start its recorder: SyntaxError")
    monitor.describe("COVERAGE", "process/100", why, start=monitor.now, duration=1)
    sentence = diagnose(run.read()).verdict.sentence
    assert "could not start its recorder: SyntaxError" in sentence


def test_ranks_are_reported_together_with_the_worst_ones_figures(run: Any) -> None:
    for rank in range(4):
        write(run, pid=100 + rank, data=10 if rank == 2 else 0.1, rank=rank)
    diagnosis = diagnose(run.read())
    assert [figures.rank for figures in diagnosis.ranks] == [0, 1, 2, 3]
    assert diagnosis.findings[0].rule == "straggler_rank"
    found = next(one for one in diagnosis.findings if one.rule == "data_loader_single_process")
    assert found.ranks == (2,)
    # One rank of four waits for half of its time, and its loop is twice as long as the others'.
    assert found.share == pytest.approx(0.2, abs=0.02)
    assert any(
        "Found in 1 of 4 training threads; the figures are those of rank 2." in sentence
        for sentence in found.evidence
    )


def test_ranks_that_may_wait_for_each_other_are_not_called_healthy(run: Any) -> None:
    for rank in range(2):
        write(run, pid=100 + rank, rank=rank)
    diagnosis = diagnose(run.read())
    assert diagnosis.verdict.id == "unknown"
    assert "waited for each other" in diagnosis.verdict.sentence
    assert {outcome.rule: outcome.state for outcome in diagnosis.outcomes}["compute_bound"] == "not checked"


def test_the_account_holds_all_trainers(run: Any) -> None:
    for rank in range(2):
        write(run, pid=100 + rank, rank=rank)
    diagnosis = diagnose(run.read())
    alone = 40 * 4 * MS
    assert alone < diagnosis.account["forward"] <= 2 * alone


def test_a_rule_that_cannot_look_at_any_trainer_is_not_checked(run: Any) -> None:
    write(run)
    outcome = diagnose(run.read(), (rule("blind", lambda: NotChecked("It is dark.")),)).outcomes[0]
    assert (outcome.state, outcome.why) == ("not checked", "It is dark.")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.sampled_from(["data", "forward", "backward", "optimizer", "python"]), min_size=1, max_size=6
    )
)
def test_findings_never_claim_more_than_the_whole(make_run: Callable[[], Any], parts: list[str]) -> None:
    run = make_run()
    write(run, data=5, python=3, steps=30)
    timeline = run.read()
    shares = diagnose(timeline, ()).account
    total = sum(shares.values())
    rules = [
        rule(f"rule_{number}", lambda part=part: [finding(shares[part] / total, part)])  # type: ignore[misc]
        for number, part in enumerate(parts)
    ]
    found = diagnose(timeline, rules).findings
    assert sum(one.share for one in found) <= 1.0 + 1e-9
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)


@pytest.mark.parametrize(("share", "is_first"), [(0.84, True), (0.2, False)])
def test_what_takes_more_of_the_run_than_the_start_comes_before_it(share: float, is_first: bool) -> None:
    verdict = Verdict("start-up-bound", 0.54, "Start-up-bound.", "measured")
    start = finding(0.12, scope=Scope.RUN, rule="slow_start")
    of_loop = finding(share, rule="data_loader_single_process")
    ordered = sorted((of_loop, start), key=lambda one: _asides(verdict, 0.0, 0.12, one))
    assert (ordered[0] is of_loop) == is_first


def test_a_diagnosis_is_made_of_plain_values(run: Any) -> None:
    write(run)
    diagnosis = diagnose(run.read(), (rule("clear", lambda: Clear("All is well.")),))
    assert isinstance(diagnosis, Diagnosis)
    assert diagnosis.steps.count == 40
    assert diagnosis.steps.median_ns == pytest.approx(10 * MS)


def test_a_rule_that_is_skipped_is_not_asked_and_the_outcome_says_who_said_so(run: Any) -> None:
    write(run)
    asked = [rule("one", fail), rule("two", lambda: Clear("It is fine."))]
    diagnosis = diagnose(run.read(), asked, skipped={"one": "ignored by --ignore"})
    assert [(outcome.rule, outcome.state, outcome.why) for outcome in diagnosis.outcomes] == [
        ("one", "not checked", "It was ignored by --ignore."),
        ("two", "clear", "It is fine."),
    ]


def test_other_thresholds_change_what_is_found(run: Any) -> None:
    write(run, data=20)
    assert "data_loader_wait" in {
        found.rule for found in diagnose(run.read()).findings
    } or "data_loader_single_process" in {found.rule for found in diagnose(run.read()).findings}
    quiet = {
        name: {"min_reported_share": 0.99} for name in ("data_loader_wait", "data_loader_single_process")
    }
    diagnosis = diagnose(run.read(), thresholds=quiet)
    assert not {found.rule for found in diagnosis.findings} & set(quiet)
    assert "data_loader_wait used min_reported_share = 0.99 from your settings." in diagnosis.warnings


def test_steps_that_were_not_counted_are_a_warning(run: Any) -> None:
    journal = write(run)
    why = journal.text("this version of torch does not report them")
    journal.describe("COVERAGE", "probe/optimizer", why, duration=1)
    (warning,) = diagnose(run.read()).warnings
    assert warning == "Some optimizer steps are missing: this version of torch does not report them."


def paused(journal: Any, **counts: int) -> None:
    """Write a pause of detail in which optimizers were counted."""
    begin = journal.now
    journal.describe("THIN", start=begin, value=-1)
    for name, count in counts.items():
        journal.sum("optimizer", begin, count, 5 * count, name.replace("_", "#"))
    journal.python(1_000)


def test_a_number_of_steps_that_is_estimated_is_a_warning(run: Any) -> None:
    journal = run.journal()
    for number in range(40):
        journal.data()
        for name in (
            ("Adam#1", "Adam#2") if number % 3 == 0 else ("Adam#1",) if number % 3 == 1 else ("Adam#2",)
        ):
            journal.optimizer(name=name)
    paused(journal, Adam_1=20, Adam_2=20)
    journal.describe("END")
    (warning,) = diagnose(run.read()).warnings
    assert warning.startswith("The number of steps of the training process is estimated: ")


@pytest.mark.parametrize(("end", "is_over", "missing"), [("END", True, 0), ("", True, 1), ("", False, 0)])
def test_a_process_that_was_cut_off_while_steps_were_only_counted_is_a_warning(
    run: Any, end: str, is_over: bool, missing: int
) -> None:
    journal = write(run)
    paused(journal, SGD_1=20)
    if end:
        journal.describe(end)
    timeline = run.read()
    timeline = replace(
        timeline, run={**timeline.run, "end": {"monotonic_ns": journal.now} if is_over else None}
    )
    found = [each for each in diagnose(timeline).warnings if "may be missing" in each]
    assert len(found) == missing
    assert all(
        each.startswith("At most 128 of the last steps of the training process may be") for each in found
    )


def test_diagnoses_with_other_thresholds_in_other_threads_do_not_affect_each_other(run: Any) -> None:
    write(run, data=20)
    timeline = run.read()
    both_began = threading.Barrier(2)
    rules = (rule("meeting", lambda: Clear(str(both_began.wait(60)))), data_loader_single_process)

    def found(min_reported_share: float) -> list[str]:
        thresholds = {"data_loader_single_process": {"min_reported_share": min_reported_share}}
        return [one.rule for one in diagnose(timeline, rules, thresholds=thresholds).findings]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(found, (0.02, 0.99))) == [["data_loader_single_process"], []]


def test_a_diagnosis_inside_another_has_its_own_thresholds(run: Any) -> None:
    write(run, data=20)
    timeline = run.read()
    quiet = {"data_loader_single_process": {"min_reported_share": 0.99}}
    inside: list[Diagnosis] = []

    def diagnose_inside() -> Clear:
        inside.append(diagnose(timeline, (data_loader_single_process,)))
        return Clear()

    rules = (rule("outside", diagnose_inside), data_loader_single_process)
    assert not diagnose(timeline, rules, thresholds=quiet).findings
    assert [found.rule for found in inside[0].findings] == ["data_loader_single_process"]


def test_unknown_rules_and_thresholds_are_errors(run: Any) -> None:
    with pytest.raises(KeyError, match="gc_pauses"):
        diagnose(run.read(), thresholds={"gc_pauses": {"min_reported_share": 0.1}})
    with pytest.raises(TypeError, match="reported_share"):
        diagnose(run.read(), thresholds={"gc_pause": {"reported_share": 0.1}})


@pytest.mark.parametrize(("name", "verdict"), [("SGD#1", "unknown"), ("SGD#2", "healthy")])
def test_steps_of_one_optimizer_in_several_threads_give_no_verdict(run: Any, name: str, verdict: str) -> None:
    journal = write(run, threads=2)
    for number in range(10):
        journal.record(
            SPANS["OPTIMIZER"], 1_000 * MS + number, 1, 0, f"{name}\x1ftrain.py\x1f30\x1fstep", thread=2
        )
    found = diagnose(run.read(), (rule("small", list),)).verdict
    assert found.id == verdict
    if verdict == "unknown":
        assert "10 of 50 steps of the same optimizers ran in 1 other thread" in found.sentence
