"""Says which evidence is missing, and why: the reasons that a rule gives when it could not be checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

from perfwrap.measures.parts import UNTOLD
from perfwrap.measures.steps import enough_steady_steps
from perfwrap.timeline.coverage import RECORDER, notes

if TYPE_CHECKING:
    from perfwrap.measures.evidence import Evidence


def _trainer(evidence: Evidence) -> str | None:
    """Say why no process counts as a trainer."""
    if evidence.trainers:
        return None
    timeline = evidence.timeline
    recorded = timeline.coverage.filter(pl.col("what") == RECORDER, pl.col("end") > pl.col("start"))
    if recorded.is_empty():
        why = "; ".join(notes(timeline, RECORDER)[:2])
        return "No Python process was recorded inside" + (f": it {why}." if why else ".")
    return "No recorded process ran a model, a backward pass or an optimizer."


def _steps(evidence: Evidence) -> str | None:
    """Say why there are no steps."""
    if any(evidence.steps(trainer).count for trainer in evidence.trainers):
        return None
    return _trainer(evidence) or "No training step was recognised in what was recorded."


def _steady_steps(evidence: Evidence) -> str | None:
    """Say that there are too few steady steps."""
    most = max((evidence.steps(trainer).steady for trainer in evidence.trainers), default=0)
    enough = enough_steady_steps(evidence.timeline)
    if most >= enough:
        return None
    return _steps(evidence) or (
        f"Only {most} of the {enough} steady steps that are wanted were recorded: let it run longer."
    )


def _probe(name: str) -> Callable[[Evidence], str | None]:
    """Return the question whether a probe was at work; steps must be there, too."""

    def ask(evidence: Evidence) -> str | None:
        failed = evidence.timeline.coverage.filter(
            pl.col("what") == name, pl.col("end") == pl.col("start"), pl.col("note").is_not_null()
        )
        if failed.height:
            return f"The recorder's {name} was not at work: {failed['note'][0]}."
        return _steps(evidence)

    return ask


def _monitor(name: str, entity: str) -> Callable[[Evidence], str | None]:
    """Return the question whether a monitor sampled something."""

    def ask(evidence: Evidence) -> str | None:
        tracks = evidence.timeline.tracks
        owners = tracks.filter(pl.col("kind") == entity)["id"].to_list()
        if tracks.filter(pl.col("kind") == "counter", pl.col("parent").is_in(owners)).height:
            return None
        why = "; ".join(notes(evidence.timeline, name)[:2])
        return f"The {name} was not watched" + (f": {why}." if why else " during this run.")

    return ask


def _stacks(evidence: Evidence) -> str | None:
    """Ask for samples of where threads were."""
    if evidence.timeline.stacks.height:
        return None
    why = "; ".join(notes(evidence.timeline, "pyspy")[:2])
    if why:
        return f"Call stacks were not recorded: {why}."
    return (
        "Call stacks were not recorded; where py-spy is installed, it samples them for a while, "
        "`perfwrap run --sample 20` does from inside."
    )


ON_CPU = "The model ran on the CPU."


def _on_cpu(evidence: Evidence) -> bool:
    """Say whether all models of the trainers were seen on the CPU."""
    facts = (evidence.facts(trainer.process).items() for trainer in evidence.trainers)
    devices = {
        value
        for found in facts
        for key, value in found
        if key.startswith("model/") and key.endswith("/device")
    }
    return devices == {"cpu"}


def _used_gpu(evidence: Evidence) -> str | None:
    """Ask for samples of a GPU that the training used."""
    return ON_CPU if _on_cpu(evidence) else _monitor("gpu", "gpu")(evidence)


def _kernels(evidence: Evidence) -> str | None:
    """Ask for a record of what the GPU did."""
    if any(gpu.count("kernel") for gpu in evidence.gpu_activity):
        return None
    if _on_cpu(evidence):
        return ON_CPU
    why = "; ".join(notes(evidence.timeline, "kernels")[:2])
    return "The GPU's kernels were not recorded" + (f": {why}." if why else ".")


PHASES = ("data", "forward", "backward", "optimizer", "scaler_step")


def _phases(evidence: Evidence) -> str | None:
    """Say that nothing tells what the program did in its steps; a recording of perfwrap's own always does."""
    if "imported" not in evidence.timeline.run:
        return None
    threads = [trainer.thread for trainer in evidence.trainers]
    told = evidence.timeline.spans.filter(pl.col("operation").is_in(PHASES), pl.col("track").is_in(threads))
    return None if told.height else UNTOLD


def _recorder(what: str) -> Callable[[Evidence], str | None]:
    """Return the question whether perfwrap's own recorder was at work, and not only another tool's."""

    def ask(evidence: Evidence) -> str | None:
        imported = "imported" in evidence.timeline.run
        return f"{what} cannot be told from imported files; `perfwrap run` records it." if imported else None

    return ask


def _start_up(evidence: Evidence) -> str | None:
    """Ask for a record of the program's beginning."""
    if evidence.attached is not None:
        return "The job ran already when perfwrap was attached to it; `perfwrap run` records its beginning."
    return _recorder("What passed before the first step")(evidence)


NEEDS: dict[str, Callable[[Evidence], str | None]] = {
    "trainer": _trainer,
    "steps": _steps,
    "steady_steps": _steady_steps,
    "data": _probe("probe/data_loader"),
    "syncs": _probe("probe/sync"),
    "transfers": _probe("probe/transfers"),
    "gc": _probe("probe/garbage"),
    "compilations": _probe("probe/compilation"),
    "options": _recorder("With which options the program calls PyTorch"),
    "copies": _recorder("Which line copies to a GPU or waits for it"),
    "checkpoints": _probe("probe/serialization"),
    "host": _monitor("host", "host"),
    "gpu": _used_gpu,
    "kernels": _kernels,
    "stacks": _stacks,
    "phases": _phases,
    "start_up": _start_up,
    "values": _recorder("Whether a value became NaN"),
    "allocator": _recorder("What torch's allocator held from step to step"),
    "recorder": _recorder("What the recorder notes inside the program"),
}
"""The evidence that rules may need; each answers None when it is there, or why it is not."""
