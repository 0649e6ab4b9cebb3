"""Making single samples is what the workers are busy with, and there is no room for more workers.

What it finds
    A DataLoader with workers that the training waits for during 2 % of the loop or more, where the samples
    (__getitem__, __getitems__ or __iter__ of the data set, with its transforms) take half of the time of making a
    batch or more. Where stacks were sampled, the line in which most of that time was spent.

Why it costs
    Every sample of every epoch pays it. When the workers keep all cores busy, only cheaper samples make the loop
    faster.

How the saving is worked out
    Measured in the workers: the samples' part of making a batch. At best all of it goes: then a step takes what its
    rest, its workers and the cores allow. Nobody knows how fast the mended code will be, so at worst nothing is
    gained.

How to fix
    Look at the hottest line. Decode once and cache; decode at the size that is needed; work on whole tensors instead
    of numbers in Python loops; move transforms of whole batches to the GPU. `perfwrap run --py-spy` names the line.

When it is wrong
    When the samples are as cheap as they can be: then the loop needs more cores, or cores of another machine.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, named, place

NEEDS = ("data", "steady_steps")

LEAST_SHARE = 0.5
"""The samples' share of making a batch from which they are what is slow."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for loaders whose samples hold the workers up."""
    slow, largest, answer = making.held_up_by(evidence, trainer, _share, LEAST_SHARE)
    if answer is not None:
        return answer
    found = [_finding(evidence, trainer, loader, step) for loader, step in slow]
    return found or Clear(f"The samples take {units.share(largest)} of making a batch.")


def _share(loader: LoaderUse) -> float:
    """Return the samples' share of making a batch, 0 where it was not told apart."""
    if loader.making is None or not loader.making.getitem_ns:
        return 0.0
    return loader.making.getitem_ns / loader.making.fetch_ns


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step) -> Finding:
    """Return the finding about one loader."""
    made = loader.making
    assert made is not None
    name = ".".join((made.getitem or "the data set").removeprefix("__main__.").split(".")[-2:])
    where = named(name, made.getitem_line)
    hottest = _hottest(evidence, trainer, loader)
    best = min(1.0, step.cheaper(_share(loader)).with_workers(max(1, step.workers)) / step.now_ns)
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for batches, and {units.share(_share(loader))} of "
        f"making one goes into its samples, by {where}.",
        share=loader.late_share,
        saving=(best, 1.0),
        evidence=(
            f"A batch takes a worker {units.duration(step.fetch_ns)}, with num_workers={step.workers}; a step takes "
            f"{units.duration(step.rest_ns)} without the wait.",
            *making.split(loader),
            *making.single(loader),
            *making.sampled(evidence, trainer, loader),
        ),
        advice=_advice(where, hottest),
        verdict="data-bound",
        location=locate(hottest or made.getitem_line or loader.created),
        experiment="cached-batch",
        confidence="inferred",
        claims=making.waits(loader),
    )


def _hottest(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Line | None:
    """Return the user's line with most samples of stacks, None where nobody sampled enough of them."""
    sampled = evidence.sampled_making(trainer, loader)
    return sampled.functions[0].line if sampled and sampled.functions else None


def _advice(where: str, hottest: Line | None) -> str:
    """Return what to change."""
    if hottest is None:
        return (
            f"Make {where} cheaper: cache what does not change, decode at the size that is needed, work on whole "
            "tensors. `perfwrap run --py-spy` names its hottest line."
        )
    return (
        f"Begin with {place(hottest, '')}, the hottest line of making samples: cache what does not change, decode at "
        "the size that is needed, work on whole tensors."
    )
