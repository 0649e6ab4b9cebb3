"""Words about where the time of making a batch goes, for the rules about loaders."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import place
from perfwrap.rules.sampled import quote


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


def sampled(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence that says in which functions batches were made; none where nobody sampled stacks."""
    who = "of its workers" if loader.workers else "of the training thread"
    return quote(evidence.sampled_making(trainer, loader), f"{who} while batches were made")


def _place(name: str | None, line: Line | None) -> str:
    """Return what it was and where, in brackets."""
    if not name:
        return ""
    short = ".".join(name.removeprefix("__main__.").split(".")[-2:]) if line else name.rpartition(".")[2]
    where = f", {place(line, '')}" if line else ""
    return f" ({short}{where})"
