"""The figures that a diagnosis shows besides its findings: account, steps, ranks, GPUs, overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfwrap.diagnosis.guard import guarded
from perfwrap.diagnosis.model import RankFigures, StepFigures
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.parts import PARTS, UNKNOWN
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity, gpu_of
from perfwrap.measures.kernels.gpu_figures import GpuFigures, gpu_figures
from perfwrap.measures.kernels.matrix_work import find_matrix_work
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.concurrent_loops import (
    find_concurrent_groups,
    find_concurrent_trainers,
    find_ranks_together,
)
from perfwrap.measures.ranks.rank_differences import CORES
from perfwrap.measures.ranks.rank_skew import find_skew
from perfwrap.measures.run.overview import Overview, find_overview
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.model import Finding, Rule, rule_id


def whole_account(evidence: Evidence) -> dict[str, int]:
    """Return the nanoseconds of each part, summed over all training threads; empty without a steady loop."""
    accounts = [evidence.get(find_account, trainer) for trainer in evidence.get(find_trainers)]
    if not sum(account.total_ns for account in accounts):
        return {}
    return {part: sum(account.ns[part] for account in accounts) for part in PARTS}


def unknown_account(account: Mapping[str, int]) -> dict[str, int]:
    """Return the account of a loop whose phases are unknown."""
    return {UNKNOWN: sum(account.values())} if account else {}


def step_figures(evidence: Evidence) -> StepFigures:
    """Return the figures of the steps."""
    main = evidence.get(find_main_trainer)
    if main is None:
        return StepFigures()
    steps = evidence.get(find_steps, main)
    rates = [
        evidence.get(find_steps, trainer).samples_per_s for trainer in evidence.get(find_concurrent_trainers)
    ]
    known = [rate for rate in rates if rate is not None]
    samples_per_s = sum(known) if known and len(known) == len(rates) else None
    return StepFigures(
        *(steps.count, steps.steady, steps.median_ns, steps.p99_ns, samples_per_s, steps.anchor),
        trainer=main.name,
    )


def rank_figures(evidence: Evidence, trainer: Trainer, has_phases: bool) -> RankFigures:
    """Return the figures of one training thread; ``has_phases`` says whether the phases of its steps are known."""
    steps, account = evidence.get(find_steps, trainer), evidence.get(find_account, trainer)
    parts = dict(account.ns) if account.total_ns else {}
    skew, _ = guarded(lambda: evidence.get(find_skew), None)
    return RankFigures(
        *(trainer.name, trainer.rank, trainer.host, trainer.pid, steps.count, steps.steady, steps.median_ns),
        start=trainer.start,
        group=next(
            number
            for number, group in enumerate(evidence.get(find_concurrent_groups), start=1)
            if trainer in group
        ),
        account=parts if has_phases else unknown_account(parts),
        waiting=account.waiting_ns,
        cores=evidence.get(find_facts, trainer.process).get(CORES, ""),
        skew=None if skew is None else skew.of(trainer),
    )


def gpu_activity(evidence: Evidence) -> tuple[GpuFigures, ...]:
    """Return the activity of each GPU whose kernels were recorded."""
    steps = {
        id(evidence.get(gpu_of, trainer)): evidence.get(find_ordinary_step, trainer)
        for trainer in evidence.get(find_trainers)
    }
    return tuple(
        gpu_figures(gpu, evidence.get(find_matrix_work, gpu), steps.get(id(gpu)))
        for gpu in evidence.get(find_gpu_activity)
    )


def overview_of(evidence: Evidence, rules: Sequence[Rule], findings: tuple[Finding, ...]) -> Overview:
    """Return the data for the overview chart; each time belongs to the same finding as in the account."""
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
    """Return the ranks whose time a finding claims; if the whole job loses time, the ranks without the cause."""
    if not finding.of_job:
        return finding.ranks
    return tuple(
        trainer.rank
        for trainer in evidence.get(find_ranks_together)
        if trainer.rank is not None and trainer.rank not in finding.ranks
    )
