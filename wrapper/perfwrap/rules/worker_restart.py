"""The DataLoader's workers are started anew for every epoch.

What it finds
    A training DataLoader with workers, with persistent_workers=False or made anew by the program, whose epoch
    starts (starting the workers, the first batch beyond a usual one, ending the workers) take 2 % of the training
    loop or more.

Why it costs
    Each epoch forks or spawns the workers again, they import and set up again, and the queue starts empty:
    the training stands still meanwhile. The shorter the epoch, the larger the share.

How the saving is worked out
    Measured: the time in which the loader's iterator was made, plus the first batch of each epoch beyond a
    median one, plus the end of the workers. At best all of it goes; at worst only the start of the processes
    does, because the first batch of an epoch is not fetched ahead even with persistent workers.

How to fix
    Pass persistent_workers=True to the DataLoader. Where the program makes it anew for each epoch, make it once before.

When it is wrong
    When the data set object is changed between epochs on purpose (persistent workers keep their old copy), or
    when memory is so short that the workers must go away between the epochs.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")

LEAST_STARTS = 2
"""Starts inside the steady loop; a single one tells nothing about the next epoch."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for training loaders that start their workers again and again."""
    loaders = [loader for loader in evidence.loaders(trainer) if loader.training and loader.workers]
    restarting = [
        loader
        for loader in loaders
        if (loader.made_again or not loader.persistent_workers) and loader.starts >= LEAST_STARTS
    ]
    answers = [_finding(evidence, trainer, loader) for loader in restarting]
    found = [finding for finding in answers if finding.share >= QUIET_SHARE]
    if found:
        return found
    if not loaders:
        return Clear("No DataLoader with workers fed the training.")
    if not restarting:
        return Clear("Workers were not started again during the steady loop.")
    return Clear(
        f"Starting workers takes {units.share(max(finding.share for finding in answers))} of the loop."
    )


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Finding:
    """Return the finding about one loader."""
    account = evidence.account(trainer)
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
        title=f"{SHARE} of the training loop goes into starting the {workers} of {where} again "
        "in every epoch.",
        share=share,
        saving=(1.0 - share, 1.0 - min(share, processes_ns / total_ns)),
        evidence=(
            f"{units.counted(loader.starts, 'epoch start')} in the steady loop, "
            f"{units.duration(loader.median_start_ns)} each as a median.",
            f"{workers} with {_setting(loader)}; {units.counted(loader.epochs, 'epoch')} in the run.",
        ),
        advice=_advice(loader, where),
        verdict="data-bound",
        location=locate(loader.created),
        experiment=None if loader.made_again else "persistent-workers",
        claims=_claims(loader),
    )


def _setting(loader: LoaderUse) -> str:
    """Return why its workers do not stay."""
    if loader.made_again:
        return "a new DataLoader from the same line each time"
    return "persistent_workers=False"


def _advice(loader: LoaderUse, where: str) -> str:
    """Return what to change; workers cannot outlive a loader that is made anew."""
    if loader.made_again:
        return f"Make {where} once, before the epochs, and pass it persistent_workers=True."
    return f"Pass persistent_workers=True to {where}: the workers then stay for all epochs."


def _claims(loader: LoaderUse) -> pl.Expr:
    """Return the loader's starts, its ends, and the first batch after each start."""
    own = (pl.col("part") == "data") & (pl.col("name") == loader.name)
    before = pl.when(own).then(pl.col("operation")).forward_fill().shift(1)
    is_first = (before == "loader_start") & ~pl.col("estimated")
    return own & (pl.col("operation").is_in(["loader_start", "data_end"]) | is_first)
