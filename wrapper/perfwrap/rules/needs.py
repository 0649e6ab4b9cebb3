"""What rules may need, and why it is missing: the reasons for rules that were not checked."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from perfwrap import units
from perfwrap.measures.account.parts import NO_PHASES
from perfwrap.measures.dataflow.wasted_work import why_no_window
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.models import find_devices
from perfwrap.measures.run.attached import find_attached
from perfwrap.measures.steps.enough import MANY, NEEDED, TOO_VARIED, are_enough
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.coverage import RECORDER, notes


def _trainer(evidence: Evidence) -> str | None:
    """Return why no process counts as training."""
    if evidence.get(find_trainers):
        return None
    timeline = evidence.timeline
    recorded = timeline.coverage.filter(pl.col("what") == RECORDER, pl.col("end") > pl.col("start"))
    if recorded.is_empty():
        why = "; ".join(notes(timeline, RECORDER)[:2])
        return "No Python process was recorded" + (f" (it {why})." if why else ".")
    return "No recorded process ran a model, a backward pass or an optimizer."


def _steps(evidence: Evidence) -> str | None:
    """Return why there are no steps."""
    if any(evidence.get(find_steps, trainer).count for trainer in evidence.get(find_trainers)):
        return None
    return _trainer(evidence) or "No training step was found in the recording."


def _steady_steps(evidence: Evidence) -> str | None:
    """Return that there are too few steady steps."""
    trainers = evidence.get(find_trainers)
    if any(evidence.get(are_enough, trainer) for trainer in trainers):
        return None
    most = max((evidence.get(find_steps, trainer).steady for trainer in trainers), default=0)
    if most >= MANY:
        return f"The {units.counted(most, 'steady step')} {TOO_VARIED}. Train longer."
    return _steps(evidence) or f"Needs {NEEDED}; only {most} recorded. Train longer."


def _probe(name: str) -> Callable[[Evidence], str | None]:
    """Return a check that a probe worked and that there are steps."""

    def ask(evidence: Evidence) -> str | None:
        failed = evidence.timeline.coverage.filter(
            pl.col("what") == name, pl.col("end") == pl.col("start"), pl.col("note").is_not_null()
        )
        if failed.height:
            return f"The recorder's {name} did not work: {failed['note'][0]}."
        return _steps(evidence)

    return ask


def _monitor(name: str, entity: str) -> Callable[[Evidence], str | None]:
    """Return a check that a monitor recorded samples."""

    def ask(evidence: Evidence) -> str | None:
        tracks = evidence.timeline.tracks
        owners = tracks.filter(pl.col("kind") == entity)["id"].to_list()
        if tracks.filter(pl.col("kind") == "counter", pl.col("parent").is_in(owners)).height:
            return None
        why = "; ".join(notes(evidence.timeline, name)[:2])
        return f"No {name} samples were recorded" + (f": {why}." if why else " in this run.")

    return ask


def _stacks(evidence: Evidence) -> str | None:
    """Check that there are call stack samples."""
    if evidence.timeline.stacks.height:
        return None
    why = "; ".join(notes(evidence.timeline, "pyspy")[:2])
    if why:
        return f"Needs call stacks: {why}."
    return "Needs call stacks; install py-spy, or use `perfwrap run --sample 20`."


ON_CPU = "The model ran on the CPU."


def _on_cpu(evidence: Evidence) -> bool:
    """Return whether all models of the training threads were on the CPU."""
    devices = [evidence.get(find_devices, trainer) for trainer in evidence.get(find_trainers)]
    return frozenset().union(*devices) == {"cpu"}


def _used_gpu(evidence: Evidence) -> str | None:
    """Check that there are samples of a GPU that the training used."""
    return ON_CPU if _on_cpu(evidence) else _monitor("gpu", "gpu")(evidence)


def _kernels(evidence: Evidence) -> str | None:
    """Check that GPU kernels were recorded."""
    if any(gpu.count("kernel") for gpu in evidence.get(find_gpu_activity)):
        return None
    if _on_cpu(evidence):
        return ON_CPU
    why = "; ".join(notes(evidence.timeline, "kernels")[:2])
    return "GPU kernels were not recorded" + (f": {why}." if why else ".")


def _operations(evidence: Evidence) -> str | None:
    """Check that a dataflow window was recorded."""
    reasons = [why_no_window(evidence, trainer) for trainer in evidence.get(find_trainers)]
    return None if None in reasons else next(iter(reasons), None) or _trainer(evidence)


PHASES = ("data", "forward", "backward", "optimizer", "scaler_step")


def _phases(evidence: Evidence) -> str | None:
    """Return that the phases of a step are unknown; perfwrap's own recordings always have them."""
    if "imported" not in evidence.timeline.run:
        return None
    threads = [trainer.thread for trainer in evidence.get(find_trainers)]
    known = evidence.timeline.spans.filter(pl.col("operation").is_in(PHASES), pl.col("track").is_in(threads))
    return None if known.height else NO_PHASES


def _recorder(what: str) -> Callable[[Evidence], str | None]:
    """Return a check that perfwrap's own recorder was used, not only another tool."""

    def ask(evidence: Evidence) -> str | None:
        imported = "imported" in evidence.timeline.run
        return f"Needs {what}, not in imported files; use `perfwrap run`." if imported else None

    return ask


def _start_up(evidence: Evidence) -> str | None:
    """Check that the start of the program was recorded."""
    if evidence.get(find_attached) is not None:
        return "The job was already running when perfwrap attached; `perfwrap run` records its start."
    return _recorder("the time before the first step")(evidence)


NEEDS: dict[str, Callable[[Evidence], str | None]] = {
    "trainer": _trainer,
    "steps": _steps,
    "steady_steps": _steady_steps,
    "data": _probe("probe/data_loader"),
    "syncs": _probe("probe/sync"),
    "transfers": _probe("probe/transfers"),
    "gc": _probe("probe/garbage"),
    "compilations": _probe("probe/compilation"),
    "recomputations": _probe("probe/recomputation"),
    "profiler": _probe("probe/program_profiler"),
    "options": _recorder("the options of PyTorch calls"),
    "copies": _recorder("the lines that copy to a GPU or wait for it"),
    "checkpoints": _probe("probe/serialization"),
    "host": _monitor("host", "host"),
    "gpu": _used_gpu,
    "kernels": _kernels,
    "stacks": _stacks,
    "operations": _operations,
    "phases": _phases,
    "start_up": _start_up,
    "values": _recorder("the values that the program reads"),
    "allocator": _recorder("the allocator's memory at each step"),
    "recorder": _recorder("the notes of perfwrap's recorder"),
}
"""The evidence that rules may need; each returns None if it is available, or why it is not."""


def why_missing(evidence: Evidence, need: str) -> str | None:
    """Return why a need is not met (the reason for NotChecked), None when it is met; KeyError for another word."""
    return NEEDS[need](evidence)
