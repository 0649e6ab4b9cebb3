"""The backward pass works out gradients that nobody uses.

What it finds
    Parameters whose gradients change though no optimizer that steps has them and nobody else writes to them: a part
    that is not trained but still requires gradients, a teacher that runs without torch.no_grad(), a layer that the
    optimizer was not given. From a twentieth of the tensors with gradients on, and 5 % of the loop.

Why it costs
    For each such parameter the backward pass works out a gradient and adds it to the one before, and it goes on through
    layers behind which nothing is trained.

How the saving is worked out
    Estimated: the backward pass by the share of the tensors with gradients that are unused, from half of that to twice
    as much. How much work a tensor's gradient is differs by layer: the first ones of images are dear. What the forward
    pass would save by not keeping its results is not counted. Of a model whose gradients are cleared unused: twice its
    forward pass, but no more than its share of all backward passes, by the part of its backward passes that are for
    nothing; from half of that to one and a half times as much. On a GPU, and in a job of several ranks, the host's time
    of the backward pass says nothing of it: not checked there.

How to fix
    Call requires_grad_(False) on what is not trained. If it was meant to be trained, give it to the optimizer. A
    teacher whose results are only compared with may run under torch.no_grad(); a loss network through which another
    learns may not. Where another model learns from a model's results, detach them.

When it is wrong
    When the program reads those gradients itself (saliency, gradient statistics), or trains these parameters later:
    an optimizer that has not stepped when they are looked at is not known.
    Looked at are the first steps and then one about every ten seconds, and models of up to 2,000 parameters, without
    the tables of embeddings; of gradients that are cleared, the first 64 times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import busiest_line, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("steady_steps", "options")

WORDS = re.compile(r"(\d{1,9}) (\d{1,18}) (\d{1,9}) (\d{1,18}) (.*)")
"""What the recorder says: tensors and elements with gradients, those that are unused, and the first unused one."""

LEAST_UNUSED = 0.05
"""Part of the tensors with gradients from which it is told."""
LEAST_GONE, MOST_GONE = 0.5, 2.0
"""Of the backward pass by the part that is unused: what goes at least and at most."""
ALL_BUT = 0.9
"""Of a backward pass no more than that goes."""


THROWN = re.compile(r"(\d{1,9}) (\d{1,9}) (\d{1,9}) (\d{1,9}) (\d{1,9}) (\d{1,9}) (.*)")
"""What the recorder says of an optimizer: how often gradients were cleared unused, and at all, its steps, the backward
passes whose gradients were cleared unused, and used, calls of the model, and the model's name."""
BACKWARD = 2.0
"""A backward pass takes twice the forward pass: a product of matrices has two gradients."""
MOSTLY = 0.5
"""Part of the clearings that are of unused gradients, from which it is told."""
MOST_OF_CALLS = 0.6
"""Part of a model's forward pass that is one line's, from which that line calls it for another's step."""


@dataclass(frozen=True)
class Thrown:
    """What was seen of an optimizer whose model's gradients were cleared unused."""

    optimizer: str
    thrown: int
    cleared: int
    steps: int
    wasted: int
    used: int
    calls: int
    model: str

    @property
    def part(self) -> float:
        """Return the part of the model's backward passes that nobody uses, as far as its calls allow that."""
        return min(self.wasted / (self.wasted + self.used), 1.0 - self.steps / self.calls)


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
    """Look at the gradients of parameters in no optimizer, and at those that are cleared unused."""
    told = _told(evidence, trainer)
    wasted = [found for found in told if found.unused]
    thrown = _thrown(evidence, trainer)
    if not wasted and not thrown:
        return Clear("No parameter was seen to get gradients that nobody uses.")
    if trains_on_gpu(evidence, trainer):
        return NotChecked("What unused gradients cost on a GPU needs a record of its kernels.")
    if trainer.rank is not None and len(evidence.trainers) > 1:
        return NotChecked("In a job of several ranks a backward pass also waits for the others.")
    answers = [_left_out(evidence, trainer, told, wasted)] if wasted else []
    answers += [_cleared(evidence, trainer, each) for each in thrown]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return findings or next(answer for answer in answers if isinstance(answer, Clear))


def _left_out(
    evidence: Evidence, trainer: Trainer, told: list[Gradients], wasted: list[Gradients]
) -> Finding | Clear:
    """Return the finding about parameters that are in no optimizer."""
    part = sum(found.unused for found in wasted) / sum(found.tensors for found in told)
    backward = evidence.account(trainer).shares["backward"]
    share = min(part, ALL_BUT) * backward
    if part < LEAST_UNUSED or share < MINOR_SHARE:
        return Clear(
            f"{units.share(part)} of the gradients are unused, of a backward pass of {units.share(backward)}."
        )
    names = _names(wasted)
    unused, tensors = sum(found.unused for found in wasted), sum(found.tensors for found in told)
    return Finding(
        title=f"About {SHARE} of the training loop goes into gradients that nobody uses: {names}.",
        share=share,
        saving=(1.0 - min(ALL_BUT, MOST_GONE * part) * backward, 1.0 - LEAST_GONE * share),
        evidence=(
            f"{units.count(unused)} of {units.counted(tensors, 'parameter')} with gradients "
            f"({units.count(sum(found.unused_elements for found in wasted))} of "
            f"{units.counted(sum(found.elements for found in told), 'number')}) are in no optimizer that stepped, "
            "and nobody else was seen to change them.",
            f"The backward pass takes {units.share(backward)} of the loop.",
        ),
        advice="Call requires_grad_(False) on what is not trained. If it was meant to be trained, give it to the "
        "optimizer.",
        verdict="compute-bound",
        confidence="inferred",
        claims=pl.col("part") == "backward",
    )


def _cleared(evidence: Evidence, trainer: Trainer, thrown: Thrown) -> Finding | Clear:
    """Return the finding about a model whose gradients are cleared before anybody used them."""
    account = evidence.account(trainer)
    backward = account.shares["backward"]
    forward = account.share_of((pl.col("part") == "forward") & (pl.col("name") == thrown.model))
    # All of its backward passes take no more of all than its forward passes do of all.
    most = backward * forward / account.shares["forward"] if forward else 0.0
    share = min(most, BACKWARD * forward) * thrown.part
    if share < MINOR_SHARE:
        return Clear(
            f"Gradients of {thrown.model} are cleared unused; that takes {units.share(share)} of the loop."
        )
    is_one_line = thrown.part > MOST_OF_CALLS
    line = busiest_line(account, "forward", thrown.model, MOST_OF_CALLS) if is_one_line else None
    where = f"; most of its calls are at {place(line, '')}" if line else ""
    return Finding(
        title=f"About {SHARE} of the training loop goes into gradients of {thrown.model} that are cleared before its "
        "optimizer uses them.",
        share=share,
        saving=(1.0 - min(most * ALL_BUT, 1.5 * share), 1.0 - share / 2),
        evidence=(
            f"In {units.count(thrown.thrown)} of {units.count(thrown.cleared)} clearings the gradients were new and "
            "its optimizer had not used them; none of the model's inputs requires gradients.",
            f"{units.share(thrown.part)} of its backward passes are for nothing; its forward passes take "
            f"{units.share(forward)} of the loop, all backward passes {units.share(backward)}.",
        ),
        advice=f"Detach what {thrown.model} returns where another model learns from it (fake.detach()), or call it "
        f"under torch.no_grad() for that{where}.",
        verdict="compute-bound",
        location=locate(line),
        confidence="inferred",
        claims=pl.col("part") == "backward",
    )


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


def _thrown(evidence: Evidence, trainer: Trainer) -> list[Thrown]:
    """Return the optimizers whose gradients are mostly cleared unused, of models that could have been detached."""
    found = []
    for key, value in evidence.facts(trainer.process).items():
        head, _, last = key.rpartition("/")
        if head.startswith("optimizer/") and last == "thrown" and (words := THROWN.fullmatch(value)):
            thrown, cleared, steps, wasted, used, calls = map(int, words.groups()[:6])
            if thrown > MOSTLY * cleared and calls > steps > 0 and wasted:
                optimizer = head.removeprefix("optimizer/")
                found.append(Thrown(optimizer, thrown, cleared, steps, wasted, used, calls, words[7]))
    return found
