"""One verdict from the findings and the account, or an abstention that says why and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from perfwrap import units
from perfwrap.measures.attached import Attached
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import COMPUTE_PARTS, gpu_utilization, trains_on_gpu
from perfwrap.measures.rank_skew import Skew
from perfwrap.measures.steps import enough_steady_steps
from perfwrap.rules.model import SEVERITIES, Finding, severity_of
from perfwrap.rules.sampled import quote
from perfwrap.timeline.coverage import RECORDER, notes

VERDICTS = {
    "data-bound": "Data-bound",
    "sync-bound": "Sync-bound",
    "launch-bound": "Launch-bound",
    "transfer-bound": "Transfer-bound",
    "communication-bound": "Communication-bound",
    "compute-bound": "Compute-bound",
    "memory-bound": "Memory-bound",
    "checkpoint/validation-bound": "Held back by checkpoints or validation",
    "throttled": "Throttled",
    "python-bound": "Python-bound",
    "healthy": "Healthy",
    "unknown": "No verdict",
}
"""Every verdict and how a sentence begins that speaks it."""

BOUND_SHARE = 0.10
"""Share of the loop from which one kind of waste gives the verdict; TraceML warns of input time from 10 %
on."""

AT_WORK = {
    "": "in the program's own code",
    "data": "waiting for batches",
    "fetch": "making batches",
    "loader_start": "starting a loader",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
}
"""What a sampled thread was doing, by the operation."""
MOST_TOLD = 4

Certainty = Literal["measured", "inferred", "none"]


@dataclass(frozen=True)
class Verdict:
    """What holds the run back, in one sentence; ``share`` is None when the verdict abstains."""

    id: str
    share: float | None
    sentence: str
    confidence: Certainty


def judge(evidence: Evidence, findings: Sequence[Finding], account: Mapping[str, int]) -> Verdict:
    """Return the verdict; ``account`` holds the nanoseconds of each part."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.verdict is not None and not finding.of_run:
            groups.setdefault(finding.verdict, []).append(finding)
    reason = _reason_to_abstain(evidence, account)
    recorded = any(
        finding.of_window and finding.verdict is not None and finding.share >= BOUND_SHARE
        for finding in findings
    )
    if reason and not recorded:
        return _with_health(_unknown(reason), findings)
    groups = {kind: _apart(group) for kind, group in groups.items()}
    shares = {kind: min(1.0, sum(finding.share for finding in group)) for kind, group in groups.items()}
    bound = [kind for kind in groups if shares[kind] >= BOUND_SHARE]
    kind = max(bound, key=lambda kind: _weight(groups[kind], shares[kind]), default=None)
    if kind is not None:
        return _with_health(_bound(kind, shares[kind], groups[kind]), findings)
    return _with_health(_healthy(evidence, findings, account), findings)


def _apart(group: list[Finding]) -> list[Finding]:
    """Return those of a kind whose shares may be summed: what claims no segments may be the same time as another.

    What the whole job loses by one rank is also what that rank's own findings tell of.
    """
    claimed = [finding for finding in group if finding.claims is not None and not finding.of_job]
    largest = max(group, key=lambda finding: finding.share)
    return claimed if sum(finding.share for finding in claimed) >= largest.share else [largest]


def _weight(group: list[Finding], share: float) -> tuple[int, float, float]:
    """Return what kinds are held against each other by, as findings are: how bad, what mending gains, what it costs."""
    worst = max(SEVERITIES.index(finding.at_most) for finding in group)
    return min(SEVERITIES.index(severity_of(share)), worst), sum(finding.gain for finding in group), share


def _with_health(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict with what matters more than speed said in it, too."""
    more = "".join(f" But: {finding.sentence}" for finding in findings if finding.health)
    return replace(verdict, sentence=verdict.sentence + more)


def failed(how: str) -> Verdict:
    """Return the verdict on a recording that perfwrap itself could not read through."""
    return _unknown(f"perfwrap failed on this recording ({how}). Please report it with the run folder.")


def only_tables() -> Verdict:
    """Return the verdict on a run of which nothing but the step tables is there."""
    return _unknown(
        "of this run only the step tables are here. They say how long steps took and what the ranks did, but not why: "
        "for that the folder must hold the recordings (journal/) of some ranks."
    )


def _bound(kind: str, share: float, group: Sequence[Finding]) -> Verdict:
    """Return the verdict that a kind of finding gives."""
    first = max(group, key=lambda finding: (finding.gain, finding.share))
    sentence = f"{VERDICTS[kind]}: {first.sentence}"
    if len(group) > 1 and share - first.share >= 0.01:
        rest = units.counted(len(group) - 1, "finding")
        sentence += f" With {rest} more of this kind it is {units.share(share)}."
    return Verdict(kind, share, sentence, first.confidence)


def _healthy(evidence: Evidence, findings: Sequence[Finding], account: Mapping[str, int]) -> Verdict:
    """Return the verdict on a loop in which no waste stands out."""
    if any(trains_on_gpu(evidence, trainer) for trainer in evidence.trainers):
        return _unknown(_gpu_doubt(gpu_utilization(evidence)))
    if len(evidence.together) > 1:
        doubt = _ranks_doubt(evidence.skew)
        if doubt:
            return _unknown(doubt)
    total = sum(account.values())
    told = sum(
        finding.share for finding in findings if finding.claims is not None and _is_about_data(finding)
    )
    waiting = account["data"] / total
    if waiting - told >= BOUND_SHARE:
        return _unknown(
            f"{units.share(waiting)} of the training loop is waiting for batches, but what held them up is not clear: "
            "the processors were short meanwhile. Run it again while nothing else runs."
        )
    compute = sum(account[part] for part in COMPUTE_PARTS) / total
    largest = max(
        (finding for finding in findings if not finding.of_run and not finding.benign),
        key=lambda f: f.share,
        default=None,
    )
    if largest is not None and largest.share >= BOUND_SHARE:
        return _unknown(f"what stands out speaks for no one kind of waste. {largest.sentence}")
    rest = "nothing else was found"
    if largest is not None and largest.share > 0:
        rest = f"the largest problem, {largest.rule}, takes {units.share(largest.share)}"
    work = f"{units.share(compute)} of the training loop is the model's own work"
    return Verdict(
        "healthy", compute, f"{VERDICTS['healthy']}: {work}{_hottest(findings)}; {rest}.", "measured"
    )


def _hottest(findings: Sequence[Finding]) -> str:
    """Return the line of the model's own work with most samples, where one stood out."""
    where = next((finding.location for finding in findings if finding.rule == "compute_bound"), None)
    return f" (hottest at {where})" if where else ""


def _ranks_doubt(skew: Skew | None) -> str:
    """Return why a job of several ranks is not called healthy although none wastes anything itself, or nothing."""
    if skew is None:
        return (
            "No waste stands out on the host, but how long the ranks waited for each other was not recorded; "
            "part of the backward pass may be that."
        )
    if skew.waiting_share >= BOUND_SHARE:
        return (
            f"No waste stands out on the host, but ranks wait for each other {units.share(skew.waiting_share)} of the "
            f"time, {units.share(skew.latest_share)} of it for {skew.latest.trainer.name}."
        )
    if not skew.measured:
        return (
            "No waste stands out on the host, and ranks come late by "
            f"{units.share(skew.waiting_share)} of the time; but what of a backward pass is computing and what is "
            "exchanging gradients was not recorded."
        )
    return ""


def _is_about_data(finding: Finding) -> bool:
    """Say whether a finding explains waits for batches, be it as a note."""
    return finding.verdict == "data-bound" or finding.rule == "data_loader_wait"


def _gpu_doubt(utilization: float | None) -> str:
    """Return why a loop on a GPU is not called healthy although the host wastes nothing."""
    if utilization is None:
        return (
            "No waste stands out on the host, but nobody watched whether the GPU was busy: run with monitors, "
            "on a machine with NVIDIA's driver."
        )
    return (
        f"No waste stands out on the host, yet the GPU was busy in only {units.share(utilization)} of the "
        "samples; what it waited for cannot be told without a record of its kernels."
    )


def _reason_to_abstain(evidence: Evidence, account: Mapping[str, int]) -> str:
    """Return why no verdict can be given, empty when one can."""
    if evidence.attached is not None and not evidence.trainers:
        return _attached(evidence, evidence.attached)
    if not evidence.trainers or evidence.main is None:
        return _nothing_trained(evidence)
    steps = evidence.steps(evidence.main)
    if steps.count == 0:
        return "No training step was found: nothing like a loop of forward, backward and optimizer steps."
    enough = enough_steady_steps(evidence.timeline)
    if steps.steady < enough or not sum(account.values()):
        return (
            f"Only {units.counted(steps.steady, 'steady step')} after "
            f"{units.counted(steps.warm_up_steps, 'step')} of warm-up; a verdict wants "
            f"{enough}. {_mend(evidence)}"
        )
    return evidence.missing("phases") or ""


def _mend(evidence: Evidence) -> str:
    """Return how to come by more steps."""
    imported = "imported" in evidence.timeline.run
    return "Record a longer window." if imported else "Let the program run longer."


def _attached(evidence: Evidence, job: Attached) -> str:
    """Return what is known about a job that was watched from outside, which is no verdict."""
    words = [
        f"perfwrap was attached to process {job.pid} and recorded nothing inside, so no step, and no wait for data or "
        "GPU, was measured. Start the job with `perfwrap run` for that, or attach with --recorder (Python 3.14 and "
        "later)."
    ]
    if job.samples:
        done = [
            f"{units.count(count)} {AT_WORK.get(operation, f'in {operation}')}"
            for operation, count in job.operations[:MOST_TOLD]
        ]
        words.append(f"Of {units.counted(job.samples, 'sample')} of its main thread: {', '.join(done)}.")
        words += quote(job.hottest, "of its own code or of making batches")
    else:
        why = "; ".join(notes(evidence.timeline, "pyspy")[:2])
        words.append("No stack of it was sampled" + (f": {why}." if why else "."))
    words += quote(job.workers, "of its DataLoader workers at work")
    if job.cores is not None:
        words.append(f"Its processes used {units.number(job.cores)} cores.")
    words += [
        f"{gpu.name} was busy in {units.share(gpu.utilization)} of the time."
        for gpu in evidence.gpus
        if gpu.utilization is not None
    ]
    return " ".join(words)


def _nothing_trained(evidence: Evidence) -> str:
    """Return why there is no trainer."""
    timeline = evidence.timeline
    if "imported" in timeline.run:
        return (
            "In what was imported nothing trains: no step marks, no forward or backward pass, no optimizer."
        )
    rows = timeline.coverage.filter(pl.col("what") == RECORDER)
    processes = units.counted(rows["track"].n_unique(), "Python process", "Python processes")
    if rows.is_empty():
        return "No Python process was reached. `perfwrap doctor` says what can be recorded here."
    if rows.filter(pl.col("end") > pl.col("start")).is_empty():
        return f"{processes} ran, but none of them was recorded: {_why_not(notes(timeline, RECORDER))}."
    return f"{processes} ran and torch was imported, but nothing trained: no backward pass, no optimizer."


def _why_not(reasons: Sequence[str]) -> str:
    """Return why processes were not recorded, in one clause."""
    if not reasons:
        return "no reason was noted"
    more = f", and {units.counted(len(reasons) - 2, 'other reason')}" if len(reasons) > 2 else ""
    return "; ".join(f"it {reason}" for reason in reasons[:2]) + more


def _unknown(reason: str) -> Verdict:
    """Return an abstention."""
    return Verdict("unknown", None, f"{VERDICTS['unknown']}: {reason}", "none")
