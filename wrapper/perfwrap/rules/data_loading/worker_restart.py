"""The DataLoader workers restart in every epoch.

What it finds
    A training DataLoader with workers and persistent_workers=False, or created again by the program, whose epoch starts
    (start of the workers, extra time of the first batch, end of the workers) take at least 2 % of the training loop.

Why it costs
    Each epoch forks or spawns the workers again, they import and set up again, and the queue starts empty. The training
    waits meanwhile. The shorter the epoch, the larger the share.

How the gain is estimated
    Measured: the time to create the loader's iterator, plus the time of each epoch's first batch beyond the median,
    plus the end of the workers. At best all of it disappears; at worst nine tenths of the start of the processes,
    because the first batch of an epoch is not prefetched even with persistent workers.

How to fix
    Pass persistent_workers=True to the DataLoader. If the program creates a new DataLoader for each epoch, create it
    only once.

When it is wrong
    When the dataset object is changed between epochs on purpose (persistent workers keep their old copy), or when
    memory is so short that the workers must exit between the epochs.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.what_if import NEARLY_ALL, best_without
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_starts: int = 2
    """Starts in the steady loop; a single one says nothing about the next epoch."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for training DataLoaders that restart their workers."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training and loader.workers]
    restarting = [
        loader
        for loader in loaders
        if (loader.made_again or not loader.persistent_workers) and loader.starts >= limits.min_starts
    ]
    answers = [_finding(evidence, trainer, loader) for loader in restarting]
    found = [finding for finding in answers if finding.share >= limits.min_reported_share]
    if found:
        return found
    if not loaders:
        return Clear("No DataLoader with workers feeds the training.")
    if not restarting:
        return Clear("No workers restarted during the steady loop.")
    return Clear(
        f"Starting workers takes {units.share(max(finding.share for finding in answers))} of the loop."
    )


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Finding:
    """Return the finding about one loader."""
    account = evidence.get(find_account, trainer)
    lengths = pl.col("end") - pl.col("start")
    own = account.segments.filter(pl.col("part") == "data", pl.col("name") == loader.name)
    processes_ns = (
        own.filter(pl.col("operation").is_in(["loader_start", "data_end"])).select(lengths.sum()).item()
    )
    ends_ns = own.filter(pl.col("operation") == "data_end").select(lengths.sum()).item()
    total_ns = max(account.total_ns, 1)
    share = min(loader.share, (loader.start_ns + ends_ns) / total_ns)
    where = named("the DataLoader", loader.created)
    workers = units.counted(loader.workers or 0, "worker")
    return Finding(
        title=f"{SHARE} of the training loop restarts the {workers} of {where} in every epoch.",
        share=share,
        evidence=(
            f"{units.counted(loader.starts, 'epoch start')} in the steady loop, "
            f"{units.duration(loader.median_start_ns)} each (median).",
            f"{workers} with {_setting(loader)}; {units.counted(loader.epochs, 'epoch')} in the run.",
        ),
        options=(
            Option(
                _advice(loader, where),
                (best_without(share), 1.0 - NEARLY_ALL * min(share, processes_ns / total_ns)),
                experiment=None if loader.made_again else "persistent-workers",
            ),
        ),
        verdict="data-bound",
        location=locate(loader.created),
        claims=_claims(loader),
    )


def _setting(loader: LoaderUse) -> str:
    """Return why its workers restart."""
    if loader.made_again:
        return "a new DataLoader from the same line each time"
    return "persistent_workers=False"


def _advice(loader: LoaderUse, where: str) -> str:
    """Return what to change; workers do not survive the creation of a new loader."""
    if loader.made_again:
        return f"Create {where} once, before the epochs, with persistent_workers=True."
    return f"Pass persistent_workers=True to {where}, so that the workers stay alive for all epochs."


def _claims(loader: LoaderUse) -> pl.Expr:
    """Select the loader's starts, its ends, and the first batch after each start."""
    own = (pl.col("part") == "data") & (pl.col("name") == loader.name)
    before = pl.when(own).then(pl.col("operation")).forward_fill().shift(1)
    is_first = (before == "loader_start") & ~pl.col("estimated")
    return own & (pl.col("operation").is_in(["loader_start", "data_end"]) | is_first)
