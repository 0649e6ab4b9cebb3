"""Merge the findings of all training threads, and add the figures of ranks that were not analyzed."""

from __future__ import annotations

from dataclasses import replace

from perfwrap.diagnosis.model import Diagnosis, StepFigures
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.fleet import Fleet
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SEVERITIES, Finding, Scope


def merge_ranks(evidence: Evidence, found: dict[Trainer, list[Finding]]) -> tuple[Finding, ...]:
    """Return the findings of all training threads, sorted by cost; findings that several of them share are merged."""
    whole = sum(evidence.get(find_account, trainer).total_ns for trainer in found) if found else 0
    groups: dict[tuple[object, ...], list[tuple[float, Finding]]] = {}
    for trainer, findings in found.items():
        weight = evidence.get(find_account, trainer).total_ns / whole if whole else 1 / len(found)
        numbers: dict[tuple[object, ...], int] = {}
        for finding in findings:
            key = (finding.rule, finding.problem)
            numbers[key] = numbers.get(key, 0) + 1
            groups.setdefault((*key, numbers[key]), []).append((weight, finding))
    merged = [_merge_findings(group, len(found)) for group in groups.values()]
    return tuple(sorted(merged, key=order))


def order(finding: Finding) -> tuple[bool, int, bool, float]:
    """Return the sort key of findings: severity, then gain of the fix; those of the whole run last."""
    return (
        finding.informational,
        -SEVERITIES.index(finding.severity),
        finding.scope is Scope.RUN,
        -finding.weight,
    )


def _merge_findings(group: list[tuple[float, Finding]], trainers: int) -> Finding:
    """Return one finding for those of several training threads: the text of the worst one, the mean share."""
    worst = max((finding for _, finding in group), key=lambda finding: finding.share)
    if trainers == 1:
        return worst
    ranks = tuple(sorted({rank for _, finding in group for rank in finding.ranks}))
    figures = f"of rank {worst.ranks[0]}" if worst.ranks else "of the worst one"
    note = f"Found in {len(group)} of {trainers} training threads; the figures are those {figures}."
    if worst.of_job:
        return worst
    share = (
        worst.share if worst.scope is Scope.RUN else sum(weight * finding.share for weight, finding in group)
    )
    return replace(worst, share=share, ranks=ranks, evidence=(*worst.evidence, note))


def with_fleet(diagnosis: Diagnosis, fleet: Fleet) -> Diagnosis:
    """Return the diagnosis of some ranks with the figures of all of them."""
    if not fleet.ranks:
        return diagnosis
    analyzed = len(diagnosis.ranks)
    main, steps = fleet.ranks[0].summary, diagnosis.steps
    rates = [rank.summary.samples_per_s for rank in fleet.ranks]
    known = [rate for rate in rates if rate is not None]
    warning = (
        f"Rules ran on {analyzed} of {len(fleet.ranks)} ranks: the lowest rank, those with the most and the least work "
        "of their own, a typical one, and their neighbors in the same launchers. Of the others, only the step tables "
        "were read.",
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
        warnings=diagnosis.warnings + (warning if analyzed else ()),
    )
