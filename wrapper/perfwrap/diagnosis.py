"""Run the rules on a timeline, let no time be sold twice, order what was found, and speak one verdict.

The only part of the reading half that catches whatever is raised: a rule that fails costs its own answer,
never the report.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

import polars as pl

from perfwrap import units
from perfwrap.measures.account import Account
from perfwrap.measures.conditions import find_conditions
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.fleet import Fleet as Fleet
from perfwrap.measures.gpu import Gpu as Gpu  # also for reports, which know no measures
from perfwrap.measures.gpu_figures import GpuFigures as GpuFigures
from perfwrap.measures.gpu_figures import gpu_figures
from perfwrap.measures.gpu_memory import GpuMemory as GpuMemory
from perfwrap.measures.overview import Overview as Overview
from perfwrap.measures.overview import TrainerOverview as TrainerOverview
from perfwrap.measures.overview import find_overview
from perfwrap.measures.own_cost import OwnCost
from perfwrap.measures.parts import PARTS
from perfwrap.measures.parts import UNKNOWN as UNKNOWN
from perfwrap.measures.parts import UNTOLD as UNTOLD
from perfwrap.measures.process_roles import process_roles
from perfwrap.measures.processors import Processors
from perfwrap.measures.rank_differences import CORES
from perfwrap.measures.rank_skew import RankSkew as RankSkew
from perfwrap.measures.rank_skew import Skew as Skew
from perfwrap.measures.roofline import roofline
from perfwrap.measures.stretches import Stretches as Stretches
from perfwrap.measures.stretches import find_stretches
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.windows import window_notes
from perfwrap.rules import RULES
from perfwrap.rules.model import (
    MINOR_SHARE,
    QUIET_SHARE,
    SEVERITIES,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Outcome,
    Rule,
    rule_id,
)
from perfwrap.rules.thresholds import Thresholds, applied
from perfwrap.timeline.model import Timeline
from perfwrap.verdict import Verdict, failed, judge

Value = TypeVar("Value")

NO_ANSWER: Answer = Clear()
"""What stands for the answer of a rule that failed."""
NO_GPUS: tuple[Gpu, ...] = ()
NO_MEMORY: tuple[GpuMemory, ...] = ()


@dataclass(frozen=True)
class StepFigures:
    """The steps of the trainer that stands for the run; samples per second are of all that trained at the same time."""

    count: int = 0
    steady: int = 0
    median_ns: float | None = None
    p99_ns: float | None = None
    samples_per_s: float | None = None
    anchor: str = ""
    """What ended a step, in words."""
    trainer: str = ""
    """The name of that trainer."""


CLAIMED = {"start": pl.Int64, "end": pl.Int64, "rule": pl.String}


@dataclass(frozen=True)
class RankFigures:
    """One trainer beside the others."""

    name: str
    rank: int | None
    host: str
    pid: int | None
    steps: int
    steady: int
    median_ns: float | None
    start: int = 1
    """Which start of its rank it is."""
    turn: int = 1
    """Trainers of the same turn were at work at the same time; turns follow each other in time."""
    account: dict[str, int] = field(default_factory=dict)
    """Each part of its own training loop in nanoseconds; empty without a steady loop."""
    waiting: dict[str, int] = field(default_factory=dict)
    """What of each of these parts was waiting for other ranks, as far as that is known."""
    cores: str = ""
    """The cores that its training thread may use, e.g. ``0-3``; empty where not known."""
    skew: RankSkew | None = None
    """It at the meetings of the ranks; None where these are not known, or it is of another start."""


@dataclass(frozen=True)
class Diagnosis:
    """What holds a run back.

    ``findings`` stand by cost, ``outcomes`` in the order of RULES. ``account`` holds each part of the
    training loop in nanoseconds, of all trainers together, UNKNOWN alone where an imported file does not tell them; it
    is empty when there was no steady loop.
    ``gpus`` are those that a monitor or the recorder sampled, with means over that loop. ``run`` is the manifest.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    account: dict[str, int] = field(default_factory=dict)
    steps: StepFigures = StepFigures()
    ranks: tuple[RankFigures, ...] = ()
    skew: Skew | None = None
    """How far the ranks that work together come apart; None where that is not known."""
    processes: dict[str, int] = field(default_factory=dict)
    """How many processes the run had, by what they were; see measures.process_roles."""
    warnings: tuple[str, ...] = ()
    perfwrap_cost: OwnCost | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_activity: tuple[GpuFigures, ...] = ()
    """Each GPU whose kernels were recorded."""
    gpu_memory: tuple[GpuMemory, ...] = ()
    """What held each GPU's memory when an imported snapshot was taken."""
    kernels: tuple[dict[str, Any], ...] = ()
    """Each kernel that ncu measured, the longest first; keys as the columns of ``measures.roofline``."""
    run: dict[str, Any] = field(default_factory=dict)
    windows: tuple[str, ...] = ()
    """What torch's profiler watched of the trainers for perfwrap, or why it did not."""
    stretches: Stretches = Stretches()
    """How the step time of the trainer that stands for the run went over it."""
    conditions: dict[str, str] = field(default_factory=dict)
    """What the run ran under; see measures.conditions."""
    processors: Processors | None = None
    """How busy the processors of the machine were on which the trainer ran that stands for the run."""
    claimed: Mapping[int, pl.DataFrame] = field(default_factory=dict, compare=False, repr=False)
    """The stretches of each trainer's time that findings claim, by its thread's track, with the columns of CLAIMED."""
    step_tables: Mapping[int, pl.DataFrame] = field(default_factory=dict, compare=False, repr=False)
    """The steps of each trainer by its thread's track, with the columns of ``measures.steps``."""
    fleet: Fleet | None = None
    """All ranks of a run in which only some could be looked at in full; ``ranks`` are those then."""
    overview: Overview | None = field(default=None, compare=False, repr=False)
    """What a picture of the whole run needs; only where it was asked for."""

    @property
    def all_ranks(self) -> tuple[RankFigures, ...]:
        """Every trainer of the run."""
        if self.fleet is None:
            return self.ranks
        known = (rank.summary for rank in self.fleet.ranks)
        return tuple(
            RankFigures(one.name, one.rank, one.host, one.pid, one.steps, one.steady, one.median_ns)
            for one in known
        )


def diagnose(
    timeline: Timeline,
    rules: Sequence[Rule] = RULES,
    skipped: Mapping[str, str] | None = None,
    thresholds: Thresholds | None = None,
    overview: bool = False,
) -> Diagnosis:
    """Return the diagnosis of a timeline; it may abstain, it never raises.

    ``skipped`` names rules that are not asked, and why not; ``thresholds`` holds those that differ from the rules' own.
    ``overview`` asks for that, too.
    """
    with applied({rule_id(rule): rule for rule in rules}, thresholds or {}):
        diagnosis, failure = _guarded(lambda: _diagnose(timeline, rules, skipped or {}, overview), None)
    diagnosis = diagnosis or Diagnosis(failed(failure), warnings=timeline.warnings, run=timeline.run)
    told = tuple(
        f"{rule} went by {name.lower()} = {value:g}, as settled by the user."
        for rule, values in (thresholds or {}).items()
        for name, value in values.items()
    )
    return replace(diagnosis, warnings=diagnosis.warnings + told)


def with_fleet(diagnosis: Diagnosis, fleet: Fleet) -> Diagnosis:
    """Return the diagnosis of some ranks with the figures of all of them."""
    if not fleet.ranks:
        return diagnosis
    looked_at = len(diagnosis.ranks)
    main, steps = fleet.ranks[0].summary, diagnosis.steps
    rates = [rank.summary.samples_per_s for rank in fleet.ranks]
    known = [rate for rate in rates if rate is not None]
    told = (
        f"What is found here was looked for in {looked_at} of {len(fleet.ranks)} ranks: the lowest, those with most "
        "and least work of their own, a usual one, and their neighbours in the same launchers. The others are known by "
        "their step tables.",
    )
    return replace(
        diagnosis,
        fleet=fleet,
        account={part: value for part, value in fleet.account_ns.items() if sum(fleet.account_ns.values())},
        steps=steps
        if steps.count and len(known) < len(rates)
        else StepFigures(
            main.steps,
            main.steady,
            main.median_ns,
            main.p99_ns,
            sum(known) if len(known) == len(rates) else None,
            main.anchor,
            main.name,
        ),
        warnings=diagnosis.warnings + (told if looked_at else ()),
    )


def _diagnose(
    timeline: Timeline, rules: Sequence[Rule], skipped: Mapping[str, str], overview: bool
) -> Diagnosis:
    """Return the diagnosis; raises where a measure fails that everything rests on."""
    evidence = Evidence(timeline)
    found: dict[Trainer, list[Finding]] = {trainer: [] for trainer in evidence.trainers}
    outcomes = [
        Outcome(rule_id(rule), "not checked", f"It was {skipped[rule_id(rule)]}.")
        if rule_id(rule) in skipped
        else _ask(rule, evidence, found)
        for rule in rules
    ]
    explained: dict[str, str] = {}
    claimed: dict[int, pl.DataFrame] = {}
    for trainer in found:
        account_of = evidence.account(trainer)
        found[trainer], dropped, claimed[trainer.thread] = _settle(account_of, found[trainer])
        explained.update(dropped)
    findings = _merged(evidence, found) if found else _of_the_run(rules, evidence)
    account = _account(evidence)
    is_told = evidence.missing("phases") is None
    main = evidence.main
    return Diagnosis(
        verdict=judge(evidence, findings, account),
        findings=findings,
        outcomes=tuple(_final(outcome, findings, explained) for outcome in outcomes),
        account=account if is_told else _untold(account),
        steps=_steps(evidence),
        ranks=tuple(_rank(evidence, trainer, is_told) for trainer in evidence.trainers),
        skew=_guarded(lambda: evidence.skew, None)[0],
        processes=process_roles(timeline, evidence.training),
        warnings=timeline.warnings + _not_looked_at(evidence),
        perfwrap_cost=_guarded(lambda: evidence.own_cost(main), None)[0]
        if main and "imported" not in timeline.run
        else None,
        gpus=_guarded(lambda: evidence.gpus, NO_GPUS)[0],
        gpu_activity=_guarded(lambda: _gpu_activity(evidence), None)[0] or (),
        gpu_memory=_guarded(lambda: evidence.gpu_memory, NO_MEMORY)[0],
        kernels=tuple(_guarded(lambda: roofline(timeline).to_dicts(), None)[0] or ()),
        run=timeline.run,
        windows=tuple(note for trainer in evidence.trainers for note in window_notes(timeline, trainer)),
        stretches=find_stretches(evidence.steps(main)) if main else Stretches(),
        conditions=find_conditions(
            timeline, main, len(evidence.at_once), evidence.steps(main) if main else None
        ),
        processors=evidence.processors(main) if main else None,
        claimed=claimed,
        step_tables={trainer.thread: evidence.steps(trainer).table for trainer in evidence.trainers},
        overview=_guarded(lambda: _overview(evidence, rules, findings), None)[0] if overview else None,
    )


def _not_looked_at(evidence: Evidence) -> tuple[str, ...]:
    """Return a warning where more processes trained than are looked at."""
    shown = len({trainer.process for trainer in evidence.trainers})
    if shown == len(evidence.training):
        return ()
    return (
        f"{len(evidence.training):,} processes trained; looked at are the {shown} that made the most steps, "
        "and what the report says of all trainers is of these.",
    )


def _guarded(work: Callable[[], Value], otherwise: Value) -> tuple[Value, str]:
    """Return what ``work`` returns and no text, or else ``otherwise`` and how it failed."""
    try:
        return work(), ""
    except Exception as error:  # noqa: BLE001 - a defect in one rule must not cost the user the whole report
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return otherwise, f"{type(error).__name__}: {error} ({PurePath(frame.filename).name}:{frame.lineno})"


def _ask(rule: Rule, evidence: Evidence, found: dict[Trainer, list[Finding]]) -> Outcome:
    """Ask one rule about every trainer; add what it finds to ``found``."""
    name = rule_id(rule)
    missing, failure = _guarded(lambda: _missing(rule, evidence), None)
    if failure or missing:
        return Outcome(name, "failed" if failure else "not checked", failure or missing or "")
    clear, unchecked = [], []
    for trainer, findings in found.items():
        answer, failure = _guarded(partial(rule.check, evidence, trainer), NO_ANSWER)
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


def _of_the_run(rules: Sequence[Rule], evidence: Evidence) -> tuple[Finding, ...]:
    """Return what rules find in a run in which nothing trained: those that have a ``check_run``."""
    found: list[Finding] = []
    for rule in rules:
        look = getattr(rule, "check_run", None)
        answer, _ = _guarded(partial(look, evidence), NO_ANSWER) if look else (NO_ANSWER, "")
        if isinstance(answer, list):
            found.extend(replace(finding, rule=rule_id(rule)) for finding in answer)
    return tuple(found)


def _missing(rule: Rule, evidence: Evidence) -> str | None:
    """Return why the rule cannot be checked, None when all its evidence is there."""
    return next((why for need in rule.NEEDS if (why := evidence.missing(need)) is not None), None)


def _settle(account: Account, findings: list[Finding]) -> tuple[list[Finding], dict[str, str], pl.DataFrame]:
    """Give each segment of the account to the first finding that claims it.

    Returns the findings with what is left of their shares, without those of which too little is left, for each rule of
    the latter the rule that took it, and what was claimed.
    """
    lengths = account.segments["end"] - account.segments["start"]
    owner = pl.Series([-1] * lengths.len(), dtype=pl.Int64)
    kept: list[Finding] = []
    dropped: dict[str, str] = {}
    for number, finding in enumerate(findings):
        if finding.claims is None or account.total_ns == 0:
            kept.append(finding)
            continue
        claimed = account.segments.select(finding.claims.fill_null(False).alias("claimed"))["claimed"]
        taken = claimed & (owner >= 0)
        lost = int(lengths.filter(taken).sum()) / account.total_ns
        left = finding.share - lost
        if finding.benign and lost >= MINOR_SHARE:
            # The good end is not good any more when a problem lies in it; a line that only it names is still hot.
            finding = replace(finding, verdict=None)
            left = left if _names_more(finding, kept) else 0.0
        if lost and (left < QUIET_SHARE or not (claimed & ~taken).any()) and not finding.health:
            dropped[finding.rule] = findings[int(owner.filter(taken).mode()[0])].rule
            continue
        first = findings[int(owner.filter(taken).mode()[0])].rule if lost else ""
        owner = owner.set(claimed & ~taken, number)
        kept.append(_reduced(finding, lost, first) if lost else finding)
    return kept, dropped, _claimed(account, owner, [finding.rule for finding in findings])


def _names_more(finding: Finding, others: Sequence[Finding]) -> bool:
    """Say whether a finding names a line in a function that none of the others names."""
    named = {(other.location.file, other.location.function) for other in others if other.location}
    return finding.location is not None and (finding.location.file, finding.location.function) not in named


def _claimed(account: Account, owner: pl.Series, rules: list[str]) -> pl.DataFrame:
    """Return the claimed segments with the rule that claims each; those that follow on each other as one."""
    names = owner.replace_strict(dict(enumerate(rules)), default=None, return_dtype=pl.String)
    rows = account.segments.select("start", "end", names.alias("rule")).filter(pl.col("rule").is_not_null())
    goes_on = (pl.col("start") == pl.col("end").shift(1)) & (pl.col("rule") == pl.col("rule").shift(1))
    stretch = (~goes_on.fill_null(False)).cum_sum().alias("stretch")
    joined = rows.with_columns(stretch).group_by("stretch", maintain_order=True)
    return joined.agg(pl.col("start").first(), pl.col("end").last(), pl.col("rule").first()).drop("stretch")


def _reduced(finding: Finding, lost: float, first: str) -> Finding:
    """Return the finding without the share that another rule's finding has already claimed."""
    low, high = (min(1.0, ratio + lost) for ratio in finding.saving)
    note = f"Before what {first} explains, it was {units.share(finding.share)}."
    share = max(0.0, finding.share - lost)
    return replace(finding, share=share, saving=(low, high), evidence=(*finding.evidence, note))


def _merged(evidence: Evidence, found: dict[Trainer, list[Finding]]) -> tuple[Finding, ...]:
    """Return the findings of all trainers by cost: what several of them share is told once."""
    whole = sum(evidence.account(trainer).total_ns for trainer in found) if found else 0
    groups: dict[tuple[object, ...], list[tuple[float, Finding]]] = {}
    for trainer, findings in found.items():
        weight = evidence.account(trainer).total_ns / whole if whole else 1 / len(found)
        numbers: dict[tuple[object, ...], int] = {}
        for finding in findings:
            key = (finding.rule, finding.location)
            numbers[key] = numbers.get(key, 0) + 1
            groups.setdefault((*key, numbers[key]), []).append((weight, finding))
    merged = [_together(group, len(found)) for group in groups.values()]
    return tuple(sorted(merged, key=_order))


def _order(finding: Finding) -> tuple[bool, int, bool, float]:
    """Return what findings are sorted by: how bad they are, then what mending gains; those of the run behind."""
    return finding.benign, -SEVERITIES.index(finding.severity), finding.of_run, -finding.weight


def _together(group: list[tuple[float, Finding]], trainers: int) -> Finding:
    """Return one finding for those of several trainers: the worst one's words, the mean share."""
    worst = max((finding for _, finding in group), key=lambda finding: finding.share)
    if trainers == 1:
        return worst
    ranks = tuple(sorted({rank for _, finding in group for rank in finding.ranks}))
    figures = f"rank {worst.ranks[0]}'s" if worst.ranks else "of the one where it is worst"
    note = f"Seen in {len(group)} of {trainers} trainers; the figures are {figures}."
    if worst.of_job:
        return worst
    share = worst.share if worst.of_run else sum(weight * finding.share for weight, finding in group)
    return replace(worst, share=share, ranks=ranks, evidence=(*worst.evidence, note))


def _final(outcome: Outcome, findings: tuple[Finding, ...], explained: dict[str, str]) -> Outcome:
    """Return the outcome with what became of the rule's findings."""
    if outcome.state == "failed":
        return outcome
    if any(finding.rule == outcome.rule for finding in findings):
        return Outcome(outcome.rule, "found")
    if outcome.rule in explained:
        return Outcome(outcome.rule, "clear", f"Explained by {explained[outcome.rule]}.")
    return outcome


def _account(evidence: Evidence) -> dict[str, int]:
    """Return the nanoseconds of each part, of all trainers together; empty without a steady loop."""
    accounts = [evidence.account(trainer) for trainer in evidence.trainers]
    if not sum(account.total_ns for account in accounts):
        return {}
    return {part: sum(account.ns[part] for account in accounts) for part in PARTS}


def _untold(account: Mapping[str, int]) -> dict[str, int]:
    """Return the account of a loop in which nothing tells what the program did."""
    return {UNKNOWN: sum(account.values())} if account else {}


def _gpu_activity(evidence: Evidence) -> tuple[GpuFigures, ...]:
    """Return what each GPU did whose kernels were recorded."""
    return tuple(gpu_figures(gpu, evidence.matrix_work(gpu)) for gpu in evidence.gpu_activity)


def _overview(evidence: Evidence, rules: Sequence[Rule], findings: tuple[Finding, ...]) -> Overview:
    """Return what a picture of the whole run needs; time goes to the same findings as in the account."""
    places = {rule_id(rule): place for place, rule in enumerate(rules)}
    order = sorted(range(len(findings)), key=lambda number: places[findings[number].rule])
    asked = find_overview(
        evidence, [(findings[number].claims, _claimants(evidence, findings[number])) for number in order]
    )
    back = [order.index(number) for number in range(len(findings))]
    return replace(
        asked,
        claims=tuple(asked.claims[place] for place in back),
        claimants=tuple(asked.claimants[place] for place in back),
    )


def _claimants(evidence: Evidence, finding: Finding) -> tuple[int, ...]:
    """Return the ranks whose time a finding claims: of one that all lose by, those that do not show the cause."""
    if not finding.of_job:
        return finding.ranks
    return tuple(
        trainer.rank
        for trainer in evidence.together
        if trainer.rank is not None and trainer.rank not in finding.ranks
    )


def _steps(evidence: Evidence) -> StepFigures:
    """Return the figures of the steps."""
    if evidence.main is None:
        return StepFigures()
    steps = evidence.steps(evidence.main)
    rates = [evidence.steps(trainer).samples_per_s for trainer in evidence.at_once]
    known = [rate for rate in rates if rate is not None]
    samples_per_s = sum(known) if known and len(known) == len(rates) else None
    return StepFigures(
        *(steps.count, steps.steady, steps.median_ns, steps.p99_ns, samples_per_s, steps.anchor),
        trainer=evidence.main.name,
    )


def _rank(evidence: Evidence, trainer: Trainer, is_told: bool) -> RankFigures:
    """Return one trainer's figures; ``is_told`` says whether it is known what the program did in its steps."""
    steps, account = evidence.steps(trainer), evidence.account(trainer)
    parts = dict(account.ns) if account.total_ns else {}
    skew, _ = _guarded(lambda: evidence.skew.of(trainer) if evidence.skew else None, None)
    return RankFigures(
        *(trainer.name, trainer.rank, trainer.host, trainer.pid, steps.count, steps.steady, steps.median_ns),
        start=trainer.start,
        turn=next(number for number, turn in enumerate(evidence.turns, start=1) if trainer in turn),
        account=parts if is_told else _untold(parts),
        waiting=account.waiting_ns,
        cores=evidence.facts(trainer.process).get(CORES, ""),
        skew=skew,
    )
