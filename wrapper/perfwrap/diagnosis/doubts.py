"""Why a run has no verdict, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from perfwrap import units
from perfwrap.measures.account.loop_figures import gpu_utilization
from perfwrap.measures.account.sampled_parts import find_contradiction
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.gpu_state import find_gpus
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.rank_skew import Skew
from perfwrap.measures.run.attached import Attached, find_attached
from perfwrap.measures.steps.enough import MANY, MIN_IMPORTED, NEEDED, TOO_VARIED, are_enough
from perfwrap.measures.steps.other_threads import find_steps_elsewhere
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.rules.needs import why_missing
from perfwrap.rules.stack_samples import quote
from perfwrap.timeline.coverage import RECORDER, notes
from perfwrap.timeline.model import Timeline

ACTIVITIES = {
    "": "in the program's own code",
    "data": "waiting for batches",
    "fetch": "making batches",
    "loader_start": "starting a loader",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
}
"""What a sampled thread was doing, by operation."""
MAX_ACTIVITIES = 4
RAY_WORKERS = "/ray/_private/workers/"
"""The folder of the programs that Ray's workers run."""


def reason_to_abstain(evidence: Evidence, account: Mapping[str, int]) -> str:
    """Return why there is no verdict; empty when there can be one."""
    job, main = evidence.get(find_attached), evidence.get(find_main_trainer)
    if main is None:
        return _nothing_trained(evidence) if job is None else _attached(evidence, job)
    steps = evidence.get(find_steps, main)
    if steps.count == 0:
        return "no training step was found (no loop of forward, backward and optimizer steps)."
    if not evidence.get(are_enough, main) or not sum(account.values()):
        imported = "imported" in evidence.timeline.run
        if steps.steady >= MANY and not imported:
            return f"the {units.counted(steps.steady, 'steady step')} {TOO_VARIED}. Train longer."
        needed = MIN_IMPORTED if imported else NEEDED
        return (
            f"only {units.counted(steps.steady, 'steady step')} after "
            f"{units.counted(steps.warm_up_steps, 'warm-up step')}; a verdict needs "
            f"{needed}. {_how_to_get_more_steps(evidence)}"
        )
    elsewhere = evidence.get(find_steps_elsewhere, main)
    if elsewhere is not None:
        threads = units.counted(elsewhere.threads, "other thread")
        return (
            f"{units.count(elsewhere.elsewhere)} of {units.counted(elsewhere.all, 'step')} of the same optimizers ran "
            f"in {threads}, and the figures are those of one thread."
        )
    return evidence.get(why_missing, "phases") or _contradicted(evidence.get(find_contradiction, main))


def _contradicted(found: tuple[str, float, float] | None) -> str:
    """Return that two independent measurements of the loop do not agree, or nothing."""
    if found is None:
        return ""
    part, recorded, sampled = found
    return (
        f"perfwrap's recording and py-spy's samples of the same run contradict each other ({part}: "
        f"{units.share(recorded)} and {units.share(sampled)} of the training loop), so one of them is wrong. Please "
        "report this with the output of `perfwrap report --format json`."
    )


def _how_to_get_more_steps(evidence: Evidence) -> str:
    """Return how to record more steps."""
    imported = "imported" in evidence.timeline.run
    return "Record a longer window." if imported else "Train longer."


def _attached(evidence: Evidence, job: Attached) -> str:
    """Return what is known about a job that was only observed from outside; this is not a verdict."""
    words = [
        f"perfwrap was attached to process {job.pid} and recorded nothing inside it, so steps and waits were "
        "not measured. To record them, start the job with `perfwrap run`, or attach with --recorder (Python 3.14 "
        "and later)."
    ]
    if job.samples:
        done = [
            f"{units.count(count)} {ACTIVITIES.get(operation, f'in {operation}')}"
            for operation, count in job.operations[:MAX_ACTIVITIES]
        ]
        words.append(f"Of {units.counted(job.samples, 'sample')} of its main thread: {', '.join(done)}.")
        words += quote(job.hottest, "of its own code or of making batches")
    else:
        why = "; ".join(notes(evidence.timeline, "pyspy")[:2])
        words.append("No call stack was sampled" + (f": {why}." if why else "."))
    words += quote(job.workers, "of its DataLoader workers at work")
    if job.cores is not None:
        words.append(f"Its processes used {units.number(job.cores)} cores.")
    words += [
        f"{gpu.name} was busy {units.share(gpu.utilization)} of the time."
        for gpu in evidence.get(find_gpus)
        if gpu.utilization is not None
    ]
    return " ".join(words)


def _nothing_trained(evidence: Evidence) -> str:
    """Return why there is no training thread."""
    timeline = evidence.timeline
    if "imported" in timeline.run:
        return "the imported files contain no training: no step markers, forward or backward passes or optimizer steps."
    rows = timeline.coverage.filter(pl.col("what") == RECORDER)
    processes = units.counted(rows["track"].n_unique(), "Python process", "Python processes")
    if rows.is_empty():
        return "no Python process was recorded. Run `perfwrap doctor` to check this machine."
    if rows.filter(pl.col("end") > pl.col("start")).is_empty():
        return f"{processes} ran, but none was recorded: {_why_not(notes(timeline, RECORDER))}."
    why = f"{processes} ran and imported torch, but none trained: no backward pass, no optimizer step."
    if not _uses_ray(timeline):
        return why
    return (
        f"{why} If Ray's workers trained, they were not recorded: they have the environment of their cluster, which "
        "was started without perfwrap, or a runtime_env with another PYTHONPATH. docs/recipes.md#ray has the commands."
    )


def _uses_ray(timeline: Timeline) -> bool:
    """Return whether the command belongs to a cluster of Ray, or a process is a worker of Ray."""
    commands = timeline.facts.filter(pl.col("key") == "argv")["value"]
    known = timeline.run.get("environment") or {}
    return "RAY_ADDRESS" in known or bool(commands.str.contains(RAY_WORKERS, literal=True).any())


def _why_not(reasons: Sequence[str]) -> str:
    """Return why processes were not recorded, in one clause."""
    if not reasons:
        return "the reason is unknown"
    more = f", and {units.counted(len(reasons) - 2, 'other reason')}" if len(reasons) > 2 else ""
    return "; ".join(f"it {reason}" for reason in reasons[:2]) + more


def ranks_doubt(skew: Skew | None, large_share: float) -> str:
    """Return why a job with several ranks is not called healthy although no rank wastes time itself, or nothing.

    From ``large_share`` of the time on, waits of ranks for each other are large.
    """
    if skew is None:
        return (
            "no waste found on the host, but how long the ranks waited for each other was not recorded; it may be part "
            "of the backward pass."
        )
    if skew.waiting_share >= large_share:
        return (
            f"no waste found on the host, but ranks wait for each other {units.share(skew.waiting_share)} of the "
            f"time, {units.share(skew.latest_share)} of it for {skew.latest.trainer.name}."
        )
    if not skew.measured:
        return (
            "no waste found on the host, and waits for late ranks take "
            f"{units.share(skew.waiting_share)} of the time; but it was not recorded how much of the backward pass is "
            "computation and how much is gradient communication."
        )
    return ""


def gpu_doubt(evidence: Evidence) -> str:
    """Return why a loop on a GPU without a record of its kernels is not called healthy although no time is wasted."""
    utilization = gpu_utilization(evidence)
    if utilization is None:
        facts = [evidence.get(find_facts, trainer.process) for trainer in evidence.get(find_trainers)]
        if unwatched := sorted({each["device_type"] for each in facts if "device_type" in each}):
            return (
                "no waste found on the host, but perfwrap has no monitor for the device "
                f"({', '.join(unwatched)}), so its utilization is unknown."
            )
        return (
            "no waste found on the host, but GPU utilization was not recorded: run with monitors on a machine with the "
            "NVIDIA driver."
        )
    return (
        f"no waste found on the host, but the GPU was busy in only {units.share(utilization)} of the samples. "
        "To see what it waited for, record its kernels."
    )
