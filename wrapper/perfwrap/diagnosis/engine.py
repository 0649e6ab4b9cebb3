"""Run the rules on a timeline, resolve overlapping findings, and return the diagnosis with one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from perfwrap import units
from perfwrap.diagnosis.attribution import resolve_overlaps
from perfwrap.diagnosis.guard import guarded
from perfwrap.diagnosis.merged_ranks import merge_ranks, order
from perfwrap.diagnosis.model import Diagnosis, Verdict
from perfwrap.diagnosis.prices import Price, find_cost
from perfwrap.diagnosis.run_figures import (
    gpu_activity,
    overview_of,
    rank_figures,
    step_figures,
    unknown_account,
    whole_account,
)
from perfwrap.diagnosis.uncertain_steps import uncertain_steps
from perfwrap.diagnosis.verdict import failed, judge
from perfwrap.diagnosis.would_not_help import Unhelpful, find_unhelpful
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.what_if import with_margin
from perfwrap.measures.dataflow.line_account import find_line_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import Gpu, find_gpus
from perfwrap.measures.health.gpu_memory import GpuMemory, find_gpu_memory
from perfwrap.measures.host.conditions import find_conditions
from perfwrap.measures.host.cores_taken import find_other_programs
from perfwrap.measures.host.process_roles import process_roles
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.kernels.phase_idle import find_phase_idle
from perfwrap.measures.kernels.roofline import roofline
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.rank_skew import find_skew
from perfwrap.measures.recorder.after_window import find_slower_after
from perfwrap.measures.recorder.own_cost import find_own_cost
from perfwrap.measures.recorder.windows import window_notes
from perfwrap.measures.run.energy import find_energy
from perfwrap.measures.run.whole_run import find_whole_run
from perfwrap.measures.steps.step_blocks import StepBlocks, find_step_blocks
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers, training_processes
from perfwrap.rules import RULES
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Outcome, Rule, RunRule, Scope, rule_id
from perfwrap.rules.needs import why_missing
from perfwrap.rules.priority import priority
from perfwrap.rules.thresholds import Thresholds, limits_of
from perfwrap.timeline.model import Timeline

NO_ANSWER: Answer = Clear()
"""The answer that replaces that of a rule that failed."""
NO_GPUS: tuple[Gpu, ...] = ()
NO_WARNINGS: tuple[str, ...] = ()
NONE_UNHELPFUL: tuple[Unhelpful, ...] = ()
NO_MEMORY: tuple[GpuMemory, ...] = ()
SLOW_START = "slow_start"
EXPLAINS_SHARE = 0.5
"""Share of a finding without a cause from which the line that has a cause comes before it."""


def diagnose(
    timeline: Timeline,
    rules: Sequence[Rule] = RULES,
    skipped: Mapping[str, str] | None = None,
    thresholds: Thresholds | None = None,
    overview: bool = False,
    account: Mapping[str, int] | None = None,
    price: Price | None = None,
) -> Diagnosis:
    """Return the diagnosis of a timeline; it may have no verdict, but it never raises.

    ``skipped`` maps rules that do not run to the reason; ``thresholds`` has those that differ from the rules' own.
    ``overview`` adds the data for the overview chart. ``account`` is that of all training threads, if only some
    are in the timeline; ``price`` gives the cost of the run. KeyError or TypeError for an unknown rule or threshold.
    """
    limits = limits_of(rules, thresholds or {})
    diagnosis, failure = guarded(
        lambda: _diagnose(timeline, rules, skipped or {}, limits, overview, account, price), None
    )
    diagnosis = diagnosis or Diagnosis(failed(failure), warnings=timeline.warnings, run=timeline.run)
    changed = tuple(
        f"{rule} used {name} = {value:g} from your settings."
        for rule, values in (thresholds or {}).items()
        for name, value in values.items()
    )
    return replace(diagnosis, warnings=diagnosis.warnings + changed)


def _diagnose(
    timeline: Timeline,
    rules: Sequence[Rule],
    skipped: Mapping[str, str],
    limits: Mapping[str, Any],
    overview: bool,
    of_all: Mapping[str, int] | None,
    price: Price | None,
) -> Diagnosis:
    """Return the diagnosis; raises if a measure fails that everything depends on."""
    evidence = Evidence(timeline)
    found: dict[Trainer, list[Finding]] = {trainer: [] for trainer in evidence.get(find_trainers)}
    outcomes = [
        Outcome(rule_id(rule), "not checked", f"It was {skipped[rule_id(rule)]}.")
        if rule_id(rule) in skipped
        else _ask(rule, evidence, limits[rule_id(rule)], found)
        for rule in rules
    ]
    explained: dict[str, str] = {}
    claimed: dict[int, pl.DataFrame] = {}
    for trainer in found:
        account_of = evidence.get(find_account, trainer)
        by_priority = sorted(found[trainer], key=lambda finding: priority(finding.rule))
        found[trainer], dropped, claimed[trainer.thread] = resolve_overlaps(account_of, by_priority)
        explained.update(dropped)
    if found:
        findings = tuple(_with_margins(finding) for finding in merge_ranks(evidence, found))
    else:
        findings, of_run = _of_the_run(rules, evidence, limits)
        outcomes = [of_run.get(outcome.rule, outcome) for outcome in outcomes]
    account = whole_account(evidence) if of_all is None else dict(of_all)
    has_phases = evidence.get(why_missing, "phases") is None
    main = evidence.get(find_main_trainer)
    verdict = judge(evidence, findings, account)
    findings = tuple(
        sorted(findings, key=partial(_asides, verdict, _largest_named(findings), _start(findings)))
    )
    energy, steps = guarded(lambda: evidence.get(find_energy), None)[0], step_figures(evidence)
    return Diagnosis(
        verdict=verdict,
        findings=findings,
        would_not_help=guarded(lambda: find_unhelpful(evidence, findings), NONE_UNHELPFUL)[0],
        outcomes=tuple(_final(outcome, findings, explained) for outcome in outcomes),
        account=account if has_phases else unknown_account(account),
        steps=steps,
        ranks=tuple(rank_figures(evidence, trainer, has_phases) for trainer in evidence.get(find_trainers)),
        skew=guarded(lambda: evidence.get(find_skew), None)[0],
        processes=evidence.get(process_roles),
        warnings=timeline.warnings
        + _not_analyzed(evidence)
        + _not_counted(timeline)
        + guarded(lambda: uncertain_steps(evidence), NO_WARNINGS)[0]
        + _slower_after(evidence),
        perfwrap_cost=guarded(lambda: evidence.get(find_own_cost, main), None)[0]
        if main and "imported" not in timeline.run
        else None,
        gpus=guarded(lambda: evidence.get(find_gpus), NO_GPUS)[0],
        gpu_activity=guarded(lambda: gpu_activity(evidence), None)[0] or (),
        phase_idle=guarded(lambda: evidence.get(find_phase_idle, main), None)[0] if main else None,
        energy=energy,
        cost=find_cost(price, energy, timeline.run, steps.median_ns),
        gpu_memory=guarded(lambda: evidence.get(find_gpu_memory), NO_MEMORY)[0],
        kernels=tuple(guarded(lambda: evidence.get(roofline).to_dicts(), None)[0] or ()),
        run=timeline.run,
        windows=tuple(
            note for trainer in evidence.get(find_trainers) for note in window_notes(timeline, trainer)
        ),
        step_blocks=find_step_blocks(evidence.get(find_steps, main)) if main else StepBlocks(),
        conditions=evidence.get(find_conditions),
        whole_run=guarded(lambda: evidence.get(find_whole_run), None)[0],
        line_account=guarded(lambda: evidence.get(find_line_account, main), None)[0] if main else None,
        processors=evidence.get(find_processors, main) if main else None,
        other_programs=evidence.get(find_other_programs, main) if main else None,
        claimed=claimed,
        step_tables={
            trainer.thread: evidence.get(find_steps, trainer).table for trainer in evidence.get(find_trainers)
        },
        overview=guarded(lambda: overview_of(evidence, rules, findings), None)[0] if overview else None,
    )


def _with_margins(finding: Finding) -> Finding:
    """Return the finding with options whose savings hold what two measurements of a fix differ by."""
    options = tuple(replace(option, saving=with_margin(option.saving)) for option in finding.options)
    return replace(finding, options=options)


def _largest_named(findings: Sequence[Finding]) -> float:
    """Return the largest share of the loop for which a finding names a line and what it does wrong."""
    named = [found for found in findings if found.location and found.scope is Scope.LOOP]
    return max((found.share for found in named if not found.informational), default=0.0)


def _start(findings: Sequence[Finding]) -> float:
    """Return the share of the run that the finding about its start names."""
    return next((found.share for found in findings if found.rule == SLOW_START), 0.0)


def _asides(verdict: Verdict, named: float, start: float, finding: Finding) -> tuple[bool, bool, bool]:
    """Return the sort key that puts findings about something else than the verdict last.

    The verdict is about the start or about the training loop, and small losses do not explain it. What takes more of
    the run than ``start``, the finding about the start, comes before that. That the host launches too slowly comes
    after the line of the host that explains most of it; ``named`` is that line's share.
    """
    if verdict.id == "start-up-bound":
        of_run = finding.share * (1.0 - (verdict.share or 0.0)) if finding.scope is Scope.LOOP else 0.0
        return finding.rule != SLOW_START and of_run <= start and not finding.health, False, False
    is_small = finding.severity == "note" and finding.verdict != verdict.id and not finding.health
    is_explained = finding.rule == "launch_bound" and named >= EXPLAINS_SHARE * finding.share
    return finding.scope is Scope.RUN and not finding.health, is_small, is_explained


def _slower_after(evidence: Evidence) -> tuple[str, ...]:
    """Return a warning if a window of torch.profiler made all later steps slower."""
    main = evidence.get(find_main_trainer)
    slower = guarded(lambda: evidence.get(find_slower_after, main), None)[0] if main else None
    if not slower:
        return ()
    return (
        f"Steps after torch.profiler's window took {units.share(slower)} longer than those before it. Its CUDA library "
        "may have stayed attached, which slows down launches; `perfwrap run --no-window` records without it.",
    )


def _not_counted(timeline: Timeline) -> tuple[str, ...]:
    """Return a warning if optimizer steps were no longer counted from some moment on."""
    table = timeline.coverage
    failed = table.filter(pl.col("what") == "probe/optimizer", pl.col("end") == pl.col("start"))
    return tuple(
        f"Some optimizer steps are missing: {note}." for note in failed["note"].drop_nulls().unique().sort()
    )


def _not_analyzed(evidence: Evidence) -> tuple[str, ...]:
    """Return a warning if more processes trained than were analyzed."""
    shown = len({trainer.process for trainer in evidence.get(find_trainers)})
    trained = len(evidence.get(training_processes))
    if shown == trained:
        return ()
    return (
        f"{trained:,} processes trained. Only the {shown} with the most steps were analyzed, and "
        "statements about all training threads refer to these.",
    )


def _ask(rule: Rule, evidence: Evidence, limits: Any, found: dict[Trainer, list[Finding]]) -> Outcome:
    """Run one rule for every training thread; add its findings to ``found``."""
    name = rule_id(rule)
    missing, failure = guarded(lambda: _missing(rule, evidence), None)
    if failure or missing:
        return Outcome(name, "failed" if failure else "not checked", failure or missing or "")
    clear, unchecked = [], []
    for trainer, findings in found.items():
        answer, failure = guarded(partial(rule.check, evidence, trainer, limits), NO_ANSWER)
        if failure:
            return Outcome(name, "failed", failure)
        if isinstance(answer, NotChecked):
            unchecked.append(answer.why)
        elif isinstance(answer, Clear):
            clear.append(answer.why)
        else:
            ranks = () if trainer.rank is None else (trainer.rank,)
            findings.extend(replace(finding, rule=name, ranks=finding.ranks or ranks) for finding in answer)
    if unchecked and not clear:
        return Outcome(name, "not checked", unchecked[0])
    return Outcome(name, "clear", clear[0] if clear else "")


def _of_the_run(
    rules: Sequence[Rule], evidence: Evidence, limits: Mapping[str, Any]
) -> tuple[tuple[Finding, ...], dict[str, Outcome]]:
    """Return the findings and outcomes of a run without training, from the rules that look there.

    That they find nothing means something only for imported files, which may contain no training.
    """
    found: list[Finding] = []
    outcomes: dict[str, Outcome] = {}
    for rule in rules:
        if not isinstance(rule, RunRule):
            continue
        name = rule_id(rule)
        answer, failure = guarded(partial(rule.check_run, evidence, limits[name]), NO_ANSWER)
        if failure:
            outcomes[name] = Outcome(name, "failed", failure)
        elif isinstance(answer, NotChecked):
            outcomes[name] = Outcome(name, "not checked", answer.why)
        elif isinstance(answer, list):
            found.extend(replace(finding, rule=name) for finding in answer)
        elif "imported" in evidence.timeline.run:
            outcomes[name] = Outcome(name, "clear", answer.why)
    return tuple(sorted(found, key=order)), outcomes


def _missing(rule: Rule, evidence: Evidence) -> str | None:
    """Return why the rule cannot run, None if all its evidence is available."""
    return next((why for need in rule.NEEDS if (why := evidence.get(why_missing, need)) is not None), None)


def _final(outcome: Outcome, findings: tuple[Finding, ...], explained: dict[str, str]) -> Outcome:
    """Return the outcome, updated with what happened to the rule's findings."""
    if outcome.state == "failed":
        return outcome
    if any(finding.rule == outcome.rule for finding in findings):
        return Outcome(outcome.rule, "found")
    if outcome.rule in explained:
        return Outcome(outcome.rule, "clear", f"Explained by {explained[outcome.rule]}.")
    return outcome
