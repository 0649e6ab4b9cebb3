"""Sentences about the time of making a batch, for the rules about DataLoaders."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_need import Step, measured_step
from perfwrap.measures.data_loading.worker_states import cpu_starvation, find_making_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import LibraryCall
from perfwrap.measures.loop.stacks import sampled_making
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, Clear, NotChecked, place
from perfwrap.rules.stack_samples import INSTALLED, main_function, main_library, quote

NO_RECORD = "Needs a recording of the workers; they were not recorded, or only as totals."
"""Why a rule about the inside of workers could not run."""


BUSY_CPU = "Other processes used the CPU too often for single-batch times to be reliable."
"""Why a rule about differences between batches could not run."""

OTHER_PROGRAMS = (
    "Other programs used the cores during the training: while they do, workers may gain less, or nothing."
)
"""What is said about more workers if other programs took cores from the training."""

MAX_STARVED_SHARE = 0.2
"""CPU starvation of the workers (share of batch making without a core) from which their times are not reliable."""

MAX_TRAINING_STARVED_SHARE = 0.1
"""CPU starvation of the training thread (share of the loop without a core) from which it delays receiving batches."""

INNER = re.compile(r"(\.<locals>)?\.<\w+>")
"""Parts of a function's name that stand for a comprehension or a lambda inside it."""

MAIN_SHARE = 0.8
"""Share of making a batch from which one function is the main cost."""


def is_starved(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> bool:
    """Return whether workers lacked a core so often that the times of single batches are not reliable."""
    states = evidence.get(find_making_states, trainer, loader)
    return states is not None and states.cpu_starvation >= MAX_STARVED_SHARE


def is_crowded(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> bool:
    """Return whether other processes used the cores that the training or the workers needed."""
    return evidence.get(cpu_starvation, trainer) >= MAX_TRAINING_STARVED_SHARE or is_starved(
        evidence, trainer, loader
    )


def late_share(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> float:
    """Return the share of the loop that waits for a loader because of the loader.

    If other processes use the cores, receiving batches that are ready is slow for that reason.
    """
    return loader.late_share if is_crowded(evidence, trainer, loader) else loader.share


def waits(loader: LoaderUse) -> pl.Expr:
    """Return the claim of all waits for a loader."""
    return (pl.col("part") == "data") & (pl.col("name") == loader.name)


def in_workers(evidence: Evidence, trainer: Trainer) -> tuple[list[LoaderUse], Clear | NotChecked | None]:
    """Return the recorded loaders with workers that the training waits for, or why there are none."""
    fed = [loader for loader in evidence.get(find_loaders, trainer) if loader.training and loader.workers]
    if not fed:
        return [], Clear("No DataLoader with workers feeds the training.")
    late = [loader for loader in fed if loader.late_share >= MIN_REPORTED_SHARE]
    if not late:
        largest = units.share(max(loader.late_share for loader in fed))
        return [], Clear(f"Waits for batches that are not ready take {largest} of the loop.")
    known = [loader for loader in late if loader.making is not None]
    return known, None if known else NotChecked(NO_RECORD)


def held_up_by(
    evidence: Evidence, trainer: Trainer, share: Callable[[LoaderUse], float], least: float
) -> tuple[list[tuple[LoaderUse, Step]], float, Clear | NotChecked | None]:
    """Return the loaders in which a part of making a batch has at least this share, and the largest share of all.

    Also returns why there is no loader to check.
    """
    loaders, answer = in_workers(evidence, trainer)
    if answer is not None:
        return [], 0.0, answer
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in loaders]
    found = [(loader, step) for loader, step in steps if step is not None and share(loader) >= least]
    return found, max(map(share, loaders)), None


def split(loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence that compares samples with collation; nothing if not recorded."""
    making = loader.making
    if making is None or making.getitem_ns is None or making.collate_ns is None:
        return ()
    samples = _place(making.getitem, making.getitem_line)
    collation = _place(making.collate, making.collate_line)
    return (
        f"Making a batch takes {units.duration(making.fetch_ns)}: {units.duration(making.getitem_ns)} for its "
        f"samples{samples}, {units.duration(making.collate_ns)} for collation{collation}.",
    )


class Cost(Struct, frozen=True):
    """The user's function that takes most of making a batch, with its line, and its share of that time."""

    words: str
    share: float
    line: Line
    library: LibraryCall | None = None
    """The library function that it spends most of its time in."""
    count: int = 0
    """Its samples, if it was sampled."""


def main_part(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Cost | None:
    """Return the user's function that takes most of making a batch; None if unknown.

    If py-spy sampled, this is the function with at least half of its samples.
    """
    sampled = evidence.get(sampled_making, trainer, loader)
    hottest = main_function(sampled)
    if hottest is not None and sampled is not None:
        function = INNER.sub("", hottest.line.function)
        return Cost(
            f"{function} ({place(hottest.line, '')})",
            hottest.count / sampled.count,
            hottest.line,
            main_library(hottest),
            hottest.count,
        )
    making = loader.making
    if making is None or making.getitem_ns is None or making.collate_ns is None:
        return None
    parts = (
        (making.getitem_ns, making.getitem, making.getitem_line),
        (making.collate_ns, making.collate, making.collate_line),
    )
    ns, name, line = max(parts, key=lambda part: part[0])
    if name is None or line is None or ns < MAIN_SHARE * making.fetch_ns or INSTALLED in line.file:
        return None
    return Cost(f"{_short(name)} ({place(line, '')})", min(1.0, ns / making.fetch_ns), line)


def single(loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence about the times of single samples; nothing if not recorded."""
    samples = None if loader.making is None else loader.making.samples
    if samples is None:
        return ()
    return (
        f"A sample takes {units.duration(samples.median_ns)} (median), {units.duration(samples.p99_ns)} (p99), "
        f"{units.duration(samples.longest_ns)} (maximum).",
    )


def sampled(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence that names the functions in which batches were made; nothing without samples."""
    who = "of its workers" if loader.workers else "of the training thread"
    return quote(evidence.get(sampled_making, trainer, loader), f"{who} while batches were made")


def _place(name: str | None, line: Line | None) -> str:
    """Return the function and its line in brackets."""
    if not name:
        return ""
    short = _short(name) if line else name.rpartition(".")[2]
    where = f", {place(line, '')}" if line else ""
    return f" ({short}{where})"


def _short(name: str) -> str:
    """Return a function's name as in the user's code."""
    return ".".join(name.removeprefix("__main__.").split(".")[-2:])
