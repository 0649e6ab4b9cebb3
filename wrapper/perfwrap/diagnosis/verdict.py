"""One verdict from the findings and the account, or an abstention that says why and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from perfwrap import units
from perfwrap.diagnosis.doubts import gpu_doubt, ranks_doubt, reason_to_abstain
from perfwrap.diagnosis.larger_part import find_larger_part
from perfwrap.diagnosis.model import Verdict
from perfwrap.diagnosis.recorded_gpu import judge_gpu
from perfwrap.diagnosis.shared_machine import on_shared_machine
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.ranks.rank_skew import find_skew
from perfwrap.measures.run.whole_run import WholeRun, find_whole_run
from perfwrap.measures.trainers import find_trainers
from perfwrap.rules.model import SEVERITIES, Finding, Scope, severity_of

VERDICTS = {
    "data-bound": "Data-bound",
    "sync-bound": "Sync-bound",
    "launch-bound": "Launch-bound",
    "transfer-bound": "Transfer-bound",
    "communication-bound": "Communication-bound",
    "compute-bound": "Compute-bound",
    "memory-bound": "Memory-bound",
    "latency-bound": "Latency-bound",
    "gpu-idle": "GPU idle",
    "memory-use": "Memory use",
    "checkpoint/validation-bound": "Checkpoint- or validation-bound",
    "throttled": "Throttled",
    "python-bound": "Python-bound",
    "start-up-bound": "Start-up-bound",
    "outside-loop-bound": "Bound by work outside the training loop",
    "healthy": "Healthy",
    "unknown": "No verdict",
}
"""Every verdict and the words that its sentence begins with."""

BOUND_SHARE = 0.10
"""Share of the loop from which one kind of waste gives the verdict; TraceML warns about input time from 10 %."""

PARTS_OF_KIND = {
    "data-bound": ("data",),
    "sync-bound": ("sync",),
    "transfer-bound": ("transfer",),
    "compute-bound": COMPUTE_PARTS,
    "checkpoint/validation-bound": ("validation", "checkpoint"),
    "python-bound": ("python",),
}
"""The parts of the account that a verdict is about, and whose share it states; other verdicts have no such part."""
PART_WORDS = {
    ("data",): "waits for batches",
    ("sync",): "reads values or waits for the GPU",
    ("transfer",): "copies data between devices",
    COMPUTE_PARTS: "is model work",
    ("validation", "checkpoint"): "is validation and checkpoints",
    ("validation",): "is validation",
    ("checkpoint",): "is checkpoints",
    ("python",): "is Python code outside the model",
    ("compile",): "is compilation",
    ("gc",): "is garbage collection",
    ("profiler",): "is the program's own profiler",
    ("perfwrap",): "is the work of perfwrap's recorder",
}
"""What the training loop does in these parts."""

LARGEST = "Largest finding:"
"""Before the sentence of a finding that explains only a part of what the sentence before it says."""

PART_OF_MODEL_WORK = ("slow_optimizer",)
"""Rules whose findings without a verdict are a part of the model's work, which is the verdict then."""

SHOWN_SHARE = 0.005
"""Share of the loop from which a part is named: it is shown as 1 %."""


def judge(evidence: Evidence, findings: Sequence[Finding], account: Mapping[str, int]) -> Verdict:
    """Return the verdict; ``account`` holds the nanoseconds of each part of the loop."""
    verdict = on_whole_run(evidence.get(find_whole_run), _judge_loop(evidence, findings, account))
    return on_shared_machine(evidence, verdict)


def on_whole_run(run: WholeRun | None, loop: Verdict) -> Verdict:
    """Return the verdict on the loop, or that most of the run is outside of it."""
    if run is None or not run.is_bound_outside:
        return loop
    outside = run.outside
    share = sum(outside.values()) / run.total_ns
    kind = "start-up-bound" if run.is_bound_by_start else "outside-loop-bound"
    is_before = run.start_ns >= 0.95 * sum(outside.values())
    before = "before the first training step"
    if run.slow_warm_up_ns >= BOUND_SHARE * run.total_ns:
        before = "before the steady training loop"
    where = before if is_before else "outside the training loop"
    costly = sorted(outside, key=lambda part: -outside[part])[:2]
    parts = ", ".join(f"{part} {units.duration(outside[part])}" for part in costly)
    sentence = (
        f"{VERDICTS[kind]}: {units.share(share)} of the run of {units.duration(run.total_ns)} is {where} ({parts}). "
        f"In the training loop: {loop.sentence}"
    )
    return Verdict(kind, share, sentence, "measured")


def _judge_loop(evidence: Evidence, findings: Sequence[Finding], account: Mapping[str, int]) -> Verdict:
    """Return the verdict on the training loop."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.verdict is not None and finding.scope not in (Scope.RUN, Scope.RECORDING):
            groups.setdefault(finding.verdict, []).append(finding)
    reason = reason_to_abstain(evidence, account)
    recorded = any(
        finding.scope is Scope.WINDOW and finding.verdict is not None and finding.share >= BOUND_SHARE
        for finding in findings
    )
    if reason and not recorded:
        return _with_health(_of_recording(evidence, findings) or _unknown(reason), findings)
    groups = {kind: _non_overlapping(_problems(group)) for kind, group in groups.items()}
    shares = {kind: min(1.0, sum(finding.share for finding in group)) for kind, group in groups.items()}
    bound = [kind for kind in groups if shares[kind] >= BOUND_SHARE]
    bound.sort(key=lambda kind: _weight(groups[kind], shares[kind]), reverse=True)
    doubts = []
    for kind in bound:
        part = None if reason else _part(evidence, kind, groups[kind], account)
        verdict = _bound(kind, shares[kind], groups[kind], part)
        larger = None if reason else find_larger_part(evidence, groups[kind], verdict.share or 0.0, account)
        if larger is None:
            return _with_health(_with_largest(verdict, groups[kind], findings), findings)
        doubts.append(_larger(*larger, _first(groups[kind])))
    return _with_health(doubts[0] if doubts else _healthy(evidence, findings, account), findings)


def _of_recording(evidence: Evidence, findings: Sequence[Finding]) -> Verdict | None:
    """Return the verdict on a recording without a training loop, by the first finding on it; None without evidence."""
    first = next((found for found in findings if found.verdict and found.scope is Scope.RECORDING), None)
    if first is None or first.verdict is None:
        return _with_words(judge_gpu(evidence))
    sentence = f"{VERDICTS[first.verdict]}: {first.sentence}"
    return Verdict(first.verdict, first.share or None, sentence, first.confidence)


def _with_words(verdict: Verdict | None) -> Verdict | None:
    """Return a verdict with its words in front of its sentence."""
    return verdict and replace(verdict, sentence=f"{VERDICTS[verdict.id]}: {verdict.sentence}")


def _problems(group: list[Finding]) -> list[Finding]:
    """Return the problems of one kind, or all findings if the problems are too small for a verdict."""
    problems = [finding for finding in group if not finding.informational]
    return problems if sum(finding.share for finding in problems) >= BOUND_SHARE else group


def _non_overlapping(group: list[Finding]) -> list[Finding]:
    """Return the findings of one kind whose shares may be added.

    Findings that claim no segments may describe the same time as others. The loss of the whole job through one rank is
    also described by the findings of that rank.
    """
    claimed = [finding for finding in group if finding.claims is not None and not finding.of_job]
    largest = max(group, key=lambda finding: finding.share)
    return claimed if sum(finding.share for finding in claimed) >= largest.share else [largest]


def _weight(group: list[Finding], share: float) -> tuple[int, float, float]:
    """Return the sort key of a kind of waste, the same as for findings: severity, gain of the fix, share."""
    worst = max(SEVERITIES.index(finding.max_severity) for finding in group)
    return min(SEVERITIES.index(severity_of(share)), worst), sum(finding.gain for finding in group), share


def _larger(part: str, share: float, first: Finding) -> Verdict:
    """Return that no rule explains the largest part of the loop; the finding about a small part follows."""
    words = f"{units.share(share)} of the training loop {PART_WORDS[(part,)]}"
    return _unknown(f"{words}, and no rule found the cause. {LARGEST} {first.sentence}")


def _with_largest(verdict: Verdict, group: Sequence[Finding], findings: Sequence[Finding]) -> Verdict:
    """Return a verdict that no problem explains with the largest problem that another rule found."""
    problems = [
        found
        for found in findings
        if not found.informational and not found.health and found.scope is not Scope.RUN
    ]
    largest = max(problems, key=lambda found: (found.gain, found.share), default=None)
    if largest is None or largest.share < BOUND_SHARE or not all(found.informational for found in group):
        return verdict
    return replace(verdict, sentence=f"{verdict.sentence} {LARGEST} {largest.sentence}")


def _with_health(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict with the health findings added to its sentence."""
    known = [finding for finding in findings if finding.health and finding.sentence not in verdict.sentence]
    more = "".join(f" Also: {finding.sentence}" for finding in known)
    return replace(verdict, sentence=verdict.sentence + more)


def failed(how: str) -> Verdict:
    """Return the verdict on a recording that perfwrap failed to analyze."""
    return _unknown(f"perfwrap failed on this recording ({how}). Please report it and attach the run folder.")


def only_tables() -> Verdict:
    """Return the verdict on a run of which only the step tables exist."""
    return _unknown(
        "only the step tables of this run are available. They show step times and rank activity, but not the causes: "
        "the folder needs the recordings (journal/) of some ranks."
    )


def _first(group: Sequence[Finding]) -> Finding:
    """Return the finding that the sentence states."""
    return max(group, key=lambda finding: (finding.gain, finding.share))


def _part(
    evidence: Evidence, kind: str, group: Sequence[Finding], account: Mapping[str, int]
) -> tuple[float, str] | None:
    """Return the share of the parts of the account that a verdict is about, and the words for them.

    None if there are none, or if the first finding is not about them: then the share is that of the findings. On a GPU
    the account only shows when the host launched the model's work.
    """
    parts, first = PARTS_OF_KIND.get(kind, ()), _first(group)
    trainers = evidence.get(find_trainers)
    if first.scope is not Scope.LOOP or first.of_job:
        return None
    if kind == "compute-bound" and any(trains_on_gpu(evidence, trainer) for trainer in trainers):
        return None
    shown = tuple(part for part in parts if account[part] / sum(account.values()) >= SHOWN_SHARE)
    if not shown or not _is_inside(evidence, first, parts):
        return None
    words = PART_WORDS[shown if shown in PART_WORDS else parts]
    whole = sum(account[part] for part in parts)
    if parts == COMPUTE_PARTS and 2 * account["optimizer"] > whole:
        words += ", most of it the optimizer's"
    return whole / sum(account.values()), words


def _is_inside(evidence: Evidence, finding: Finding, parts: Sequence[str]) -> bool:
    """Return whether most of the time that a finding claims is in these parts.

    One that claims nothing, or little of its share, is taken as so: it is about work inside of the phases.
    """
    if finding.claims is None:
        return True
    own, claimed, whole = 0.0, 0.0, 0.0
    for trainer in evidence.get(find_trainers):
        account = evidence.get(find_account, trainer)
        whole += account.total_ns
        claimed += account.share_of(finding.claims) * account.total_ns
        own += account.share_of(finding.claims & pl.col("part").is_in([*parts])) * account.total_ns
    return own > claimed / 2 or claimed < finding.share * whole / 2


def _bound(kind: str, share: float, group: Sequence[Finding], part: tuple[float, str] | None) -> Verdict:
    """Return the verdict for the kind of waste that limits the loop.

    Its share is that of its part of the account, so that it agrees with the account that reports show; what the
    findings explain of that follows in the sentence.
    """
    first = _first(group)
    sentence = first.sentence
    if len(group) > 1 and share - first.share >= 0.01:
        rest = units.counted(len(group) - 1, "similar finding")
        sentence += f" Together with {rest}: {units.share(share)}."
    if part is None or (part[0] < share and not first.informational):
        return Verdict(kind, share, f"{VERDICTS[kind]}: {sentence}", first.confidence)
    whole, words = part
    if first.informational or units.share(whole) != units.share(first.share):
        about = f"{units.share(whole)} of the training loop {words}."
        sentence = about if first.informational else f"{about} {LARGEST} {sentence}"
    return Verdict(kind, whole, f"{VERDICTS[kind]}: {sentence}", first.confidence)


def _healthy(evidence: Evidence, findings: Sequence[Finding], account: Mapping[str, int]) -> Verdict:
    """Return the verdict on a loop without a dominant kind of waste."""
    recorded = _with_words(judge_gpu(evidence))
    if recorded is not None:
        return recorded
    if any(trains_on_gpu(evidence, trainer) for trainer in evidence.get(find_trainers)):
        return _unknown(gpu_doubt(evidence))
    if len(evidence.get(find_ranks_together)) > 1:
        doubt = ranks_doubt(evidence.get(find_skew), BOUND_SHARE)
        if doubt:
            return _unknown(doubt)
    total = sum(account.values())
    explained = sum(
        finding.share for finding in findings if finding.claims is not None and _is_about_data(finding)
    )
    waiting = account["data"] / total
    if waiting - explained >= BOUND_SHARE:
        return _unknown(
            f"{units.share(waiting)} of the training loop waits for batches, but the cause is unclear because the CPU "
            "was busy at the time. Run again while nothing else runs on this machine."
        )
    compute = sum(account[part] for part in COMPUTE_PARTS) / total
    largest = max(
        (finding for finding in findings if finding.scope is not Scope.RUN and not finding.informational),
        key=lambda f: f.share,
        default=None,
    )
    if largest is not None and largest.share >= BOUND_SHARE and largest.rule not in PART_OF_MODEL_WORK:
        return _unknown(f"no single kind of waste dominates. {largest.sentence}")
    rest = "no other problem found"
    if largest is not None and largest.share > 0:
        rest = f"largest overhead: {largest.rule}, {units.share(largest.share)}"
    work = (
        f"{units.share(compute)} of the training loop is model work{_hottest(findings)}{_large_rest(account)}"
    )
    return Verdict("healthy", compute, f"{VERDICTS['healthy']}: {work}; {rest}.", "measured")


def _large_rest(account: Mapping[str, int]) -> str:
    """Return the largest part besides the model's work, where it is large."""
    share, part = max(
        (ns / sum(account.values()), part) for part, ns in account.items() if part not in COMPUTE_PARTS
    )
    return f", {units.share(share)} {PART_WORDS[(part,)]}" if share >= BOUND_SHARE else ""


def _hottest(findings: Sequence[Finding]) -> str:
    """Return the hottest line of the model, where one stands out."""
    where = next((finding.location for finding in findings if finding.rule == "compute_bound"), None)
    return f" (hottest line: {where})" if where else ""


def _is_about_data(finding: Finding) -> bool:
    """Return whether a finding explains waits for batches, even if only as a note."""
    return finding.verdict == "data-bound" or finding.rule == "data_loader_wait"


def _unknown(reason: str) -> Verdict:
    """Return a result without a verdict."""
    return Verdict("unknown", None, f"{VERDICTS['unknown']}: {reason}", "none")
