"""Words about where the time of making a batch goes, for the rules about loaders."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step, measured_step
from perfwrap.rules.model import QUIET_SHARE, Clear, NotChecked, place
from perfwrap.rules.sampled import INSTALLED, main_function, quote

NO_RECORD = "Nothing was recorded inside of the workers: they were not reached, or their details rest."
"""Why a rule about the inside of workers could not be checked."""


DENIED = "Others took the cores from the workers so often that the times of single batches tell about that."
"""Why a rule about the unevenness of batches could not be checked."""

DENIED_SHARE = 0.2
"""Share of making batches in which workers wanted a core and had none, from which their times are not their own."""

TRAINING_DENIED_SHARE = 0.1
"""Share of the loop in which the training wanted a core and had none, from which receiving is slow for that reason."""

MOST = 0.8
"""Part of making a batch that one function takes, from which it is what to look at."""


def denied(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> bool:
    """Say whether workers were without a core so often that the times of single batches say nothing of their own."""
    states = evidence.making_states(trainer, loader)
    return states is not None and states.denied_share >= DENIED_SHARE


def is_crowded(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> bool:
    """Say whether others took the cores, from the training or from the workers."""
    return evidence.denied_share(trainer) >= TRAINING_DENIED_SHARE or denied(evidence, trainer, loader)


def late_share(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> float:
    """Return the share of waiting for a loader that is the loader's.

    Where others took the cores, receiving batches that were ready takes long for that reason.
    """
    return loader.late_share if is_crowded(evidence, trainer, loader) else loader.share


def waits(loader: LoaderUse) -> pl.Expr:
    """Return the claim of all that the training waits for a loader."""
    return (pl.col("part") == "data") & (pl.col("name") == loader.name)


def in_workers(evidence: Evidence, trainer: Trainer) -> tuple[list[LoaderUse], Clear | NotChecked | None]:
    """Return the loaders whose workers the training waits for and were recorded, or why there is none."""
    fed = [loader for loader in evidence.loaders(trainer) if loader.training and loader.workers]
    if not fed:
        return [], Clear("No DataLoader with workers fed the training.")
    late = [loader for loader in fed if loader.late_share >= QUIET_SHARE]
    if not late:
        largest = units.share(max(loader.late_share for loader in fed))
        return [], Clear(f"Waiting for batches that were not ready takes {largest} of the loop.")
    known = [loader for loader in late if loader.making is not None]
    return known, None if known else NotChecked(NO_RECORD)


def held_up_by(
    evidence: Evidence, trainer: Trainer, share: Callable[[LoaderUse], float], least: float
) -> tuple[list[tuple[LoaderUse, Step]], float, Clear | NotChecked | None]:
    """Return the loaders of which a part of making a batch has that share or more, and the largest share of all.

    Or else why there is none to look at.
    """
    loaders, answer = in_workers(evidence, trainer)
    if answer is not None:
        return [], 0.0, answer
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in loaders]
    found = [(loader, step) for loader, step in steps if step is not None and share(loader) >= least]
    return found, max(map(share, loaders)), None


def split(loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence that sets samples against collation; none where nothing was recorded."""
    making = loader.making
    if making is None or making.getitem_ns is None or making.collate_ns is None:
        return ()
    samples = _place(making.getitem, making.getitem_line)
    collation = _place(making.collate, making.collate_line)
    return (
        f"Of {units.duration(making.fetch_ns)} for making a batch, {units.duration(making.getitem_ns)} go into its "
        f"samples{samples} and {units.duration(making.collate_ns)} into collation{collation}.",
    )


def dearest(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> str:
    """Return what of the user's own most of making a batch goes into, and where; empty where nobody knows.

    Where py-spy looked, that is the function with half of its samples.
    """
    hottest = main_function(evidence.sampled_making(trainer, loader))
    if hottest is not None:
        return f"{hottest.line.function} ({place(hottest.line, '')})"
    making = loader.making
    if making is None or making.getitem_ns is None or making.collate_ns is None:
        return ""
    parts = (
        (making.getitem_ns, making.getitem, making.getitem_line),
        (making.collate_ns, making.collate, making.collate_line),
    )
    ns, name, line = max(parts, key=lambda part: part[0])
    if name is None or line is None or ns < MOST * making.fetch_ns or INSTALLED in line.file:
        return ""
    return f"{_short(name)} ({place(line, '')})"


def single(loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence about the times of single samples; none where nobody watched them."""
    samples = None if loader.making is None else loader.making.samples
    if samples is None:
        return ()
    return (
        f"A sample takes {units.duration(samples.median_ns)} as a median, {units.duration(samples.p99_ns)} at p99 and "
        f"{units.duration(samples.longest_ns)} at most.",
    )


def sampled(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence that says in which functions batches were made; none where nobody sampled stacks."""
    who = "of its workers" if loader.workers else "of the training thread"
    return quote(evidence.sampled_making(trainer, loader), f"{who} while batches were made")


def _place(name: str | None, line: Line | None) -> str:
    """Return what it was and where, in brackets."""
    if not name:
        return ""
    short = _short(name) if line else name.rpartition(".")[2]
    where = f", {place(line, '')}" if line else ""
    return f" ({short}{where})"


def _short(name: str) -> str:
    """Return a function's name as its user knows it."""
    return ".".join(name.removeprefix("__main__.").split(".")[-2:])
