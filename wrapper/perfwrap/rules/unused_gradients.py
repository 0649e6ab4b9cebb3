"""The backward pass works out gradients that nobody uses.

What it finds
    Parameters that get gradients though no optimizer has them and nobody else writes to them: a pretrained part that
    is not trained but still requires gradients, a teacher that runs without torch.no_grad(), a layer that the
    optimizer was not given. From a twentieth of the tensors with gradients on, and 5 % of the loop.

Why it costs
    For each such parameter the backward pass works out a gradient and adds it to the one before, and it goes on through
    layers behind which nothing is trained.

How the saving is worked out
    Estimated: the backward pass by the share of the tensors with gradients that are unused, from a third of that to one
    and a half times as much. How much work a tensor's gradient is differs by layer. What the forward pass would
    save by not keeping its results is not counted. On a GPU, and in a job of several ranks, the host's time of the
    backward pass says nothing of it: not checked there.

How to fix
    Call requires_grad_(False) on what is not trained, or run it under torch.no_grad(). If it was meant to be trained,
    give it to the optimizer.

When it is wrong
    When the program reads those gradients itself (saliency, gradient statistics), or trains these parameters later.
    Looked at are the first steps and then one about every ten seconds, and models of up to 2,000 parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "options")

WORDS = re.compile(r"(\d{1,9}) (\d{1,18}) (\d{1,9}) (\d{1,18}) (.*)")
"""What the recorder says: tensors and elements with gradients, those that are unused, and the first unused one."""

LEAST_UNUSED = 0.05
"""Part of the tensors with gradients from which it is told."""
LEAST_GONE, MOST_GONE = 1 / 3, 1.5
"""Of the backward pass by the part that is unused: what goes at least and at most."""
ALL_BUT = 0.9
"""Of a backward pass no more than that goes."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of one model: tensors and elements, all of them and the unused, and the first unused one's name."""

    model: str
    tensors: int
    elements: int
    unused: int
    unused_elements: int
    first: str


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the parameters that get gradients and are in no optimizer."""
    told = _told(evidence, trainer)
    wasted = [found for found in told if found.unused]
    if not wasted:
        return Clear("No parameter was seen to get gradients that nobody uses.")
    if trains_on_gpu(evidence, trainer):
        return NotChecked("What unused gradients cost on a GPU needs a record of its kernels.")
    if trainer.rank is not None and len(evidence.trainers) > 1:
        return NotChecked("In a job of several ranks a backward pass also waits for the others.")
    part = sum(found.unused for found in wasted) / sum(found.tensors for found in told)
    backward = evidence.account(trainer).shares["backward"]
    share = min(part, ALL_BUT) * backward
    if part < LEAST_UNUSED or share < MINOR_SHARE:
        return Clear(
            f"{units.share(part)} of the gradients are unused, of a backward pass of {units.share(backward)}."
        )
    names = _names(wasted)
    unused, tensors = sum(found.unused for found in wasted), sum(found.tensors for found in told)
    return [
        Finding(
            title=f"About {SHARE} of the training loop goes into gradients that nobody uses: {names}.",
            share=share,
            saving=(1.0 - min(ALL_BUT, MOST_GONE * part) * backward, 1.0 - LEAST_GONE * share),
            evidence=(
                f"{units.count(unused)} of {units.counted(tensors, 'parameter')} with gradients "
                f"({units.count(sum(found.unused_elements for found in wasted))} of "
                f"{units.counted(sum(found.elements for found in told), 'number')}) are in no optimizer, and nobody "
                "else changes them.",
                f"The backward pass takes {units.share(backward)} of the loop.",
            ),
            advice="Call requires_grad_(False) on what is not trained, or run it under torch.no_grad(): the backward "
            "pass then stops there. If it was meant to be trained, give it to the optimizer.",
            verdict="compute-bound",
            confidence="inferred",
            claims=pl.col("part") == "backward",
        )
    ]


def _names(wasted: list[Gradients]) -> str:
    """Return the first of them by its name, and how many more there are."""
    first, more = wasted[0], sum(found.unused for found in wasted) - 1
    others = f" and {units.count(more)} more" if more else ""
    return f"{first.first} of {first.model}{others}"


def _told(evidence: Evidence, trainer: Trainer) -> list[Gradients]:
    """Return what the recorder said last of each model's gradients."""
    found = []
    for key, value in evidence.facts(trainer.process).items():
        head, _, last = key.rpartition("/")
        if head.startswith("model/") and last == "gradients" and (words := WORDS.fullmatch(value)):
            tensors, elements, unused, unused_elements = map(int, words.groups()[:4])
            found.append(
                Gradients(head.removeprefix("model/"), tensors, elements, unused, unused_elements, words[5])
            )
    return found
