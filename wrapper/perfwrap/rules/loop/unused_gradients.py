"""The backward pass computes gradients that are never used.

What it finds
    Parameters whose gradients change although no optimizer that steps has them and nothing else writes to them: a part
    that is not trained but still requires gradients, a teacher without torch.no_grad(), a layer that was not given to
    the optimizer. Reported from 5 % of the tensors with gradients and 5 % of the loop.

Why it costs
    For each such parameter the backward pass computes a gradient and adds it to the old one, and it continues through
    layers before which nothing is trained.

How the gain is estimated
    Estimated: the backward time times the share of unused tensors among those with gradients, from 75 % of that to
    twice as much. The cost of a gradient differs by layer; the first layers of image models are expensive. Savings in
    the forward pass are not counted. If a model's gradients are always cleared without use, the gain is estimated as
    twice its forward time, limited by its share of the backward time, times the fraction of unneeded backward passes;
    from 75 % of that to one and a half times as much. Not checked on a GPU or with several ranks, because the host's
    time in the backward pass says nothing about it there.

How to fix
    Call requires_grad_(False) on parameters that are not trained. If they should be trained, add them to an optimizer.
    A teacher whose outputs are only compared may run under torch.no_grad(); a loss network through which another model
    learns may not. If another model learns from a model's outputs, detach them.

When it is wrong
    When the program reads these gradients itself (saliency, gradient statistics), or trains these parameters later: an
    optimizer that has not stepped yet is unknown.
    Checked are the first steps and then about one every ten seconds, and models of up to 2,000 parameters, without
    embedding tables; for cleared gradients, the first 64 times.
"""

from __future__ import annotations

import re

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import busiest_line, trains_on_gpu
from perfwrap.measures.account.what_if import MOST
from perfwrap.measures.dataflow.wasted_work import FROZEN, WEIGHTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.models import Gradients, find_models
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, locate, place
from perfwrap.rules.wasted_step import explains

NEEDS = ("steady_steps", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    min_unused_share: float = 0.05
    """Share of the tensors with gradients from which unused ones are reported."""
    min_saved: float = MOST
    max_saved: float = 2.0
    """Saved backward time over the unused share, at least and at most."""
    max_backward_share: float = 0.9
    """Maximum share of a backward pass that can be saved."""
    backward_ratio: float = 2.0
    """A backward pass takes twice as long as the forward pass: a matrix product has two gradients."""
    min_cleared_share: float = 0.5
    """Share of unused gradients among all cleared ones from which it is reported."""
    min_line_share: float = 0.9
    """Share of an untrained model's forward time on one line from which that line is named."""
    min_calls_share: float = 0.6
    """Share of a model's forward time on one line from which that line calls it for another model's step."""


CLEARED_WORDS = re.compile(r"(\d{1,9}) (\d{1,9}) (\d{1,9}) (\d{1,9}) (\d{1,9}) (\d{1,9}) (.*)")
"""The recorder's figures of an optimizer: how often gradients were cleared unused, and at all, its steps, the backward
passes whose gradients were cleared unused, and used, model calls, and the model's name."""


class ClearedGradients(Struct, frozen=True):
    """The figures of an optimizer whose model's gradients were cleared unused."""

    optimizer: str
    unused: int
    cleared: int
    steps: int
    wasted: int
    used: int
    calls: int
    model: str

    @property
    def part(self) -> float:
        """Return the share of the model's backward passes that are never used, limited by its calls."""
        return min(self.wasted / (self.wasted + self.used), 1.0 - self.steps / self.calls)


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the gradients of parameters in no optimizer, and those that are cleared unused."""
    known = {
        model.name: model.gradients
        for model in evidence.get(find_models, trainer)
        if model.gradients is not None
    }
    wasted = {name: found for name, found in known.items() if found.unused}
    cleared = _cleared_gradients(evidence, trainer, limits)
    if not wasted and not cleared:
        return Clear("No parameter gets gradients that are never used.")
    if explains(evidence, trainer, (FROZEN, WEIGHTS)):
        return Clear("Explained by frozen_part_with_gradients or needless_weight_gradients.")
    if trains_on_gpu(evidence, trainer):
        return NotChecked("The cost of unused gradients on a GPU needs a record of its kernels.")
    if trainer.rank is not None and len(evidence.get(find_trainers)) > 1:
        return NotChecked("With several ranks, a backward pass also waits for other ranks.")
    answers = [_left_out(evidence, trainer, known, wasted, limits)] if wasted else []
    answers += [_cleared(evidence, trainer, each, limits) for each in cleared]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return findings or next(answer for answer in answers if isinstance(answer, Clear))


def _left_out(
    evidence: Evidence,
    trainer: Trainer,
    known: dict[str, Gradients],
    wasted: dict[str, Gradients],
    limits: Limits,
) -> Finding | Clear:
    """Return the finding about parameters that are in no optimizer."""
    unused = sum(found.unused for found in wasted.values())
    tensors = sum(found.tensors for found in known.values())
    part = unused / tensors
    backward = evidence.get(find_account, trainer).shares["backward"]
    share = min(part, limits.max_backward_share) * backward
    if part < limits.min_unused_share or share < limits.minor_share:
        return Clear(
            f"{units.share(part)} of the gradients are unused; the backward pass takes {units.share(backward)}."
        )
    account = evidence.get(find_account, trainer)
    whole = [name for name, found in wasted.items() if found.unused == found.tensors]
    line = busiest_line(account, "forward", whole[0], limits.min_line_share) if len(whole) == 1 else None
    where = f", or detach its result at {place(line, '')}" if line else ""
    unused_elements = sum(found.unused_elements for found in wasted.values())
    elements = sum(found.elements for found in known.values())
    return Finding(
        title=f"About {SHARE} of the training loop computes gradients that are never used: {_names(wasted)}.",
        share=share,
        evidence=(
            f"{units.count(unused)} of {units.counted(tensors, 'parameter')} with gradients "
            f"({units.count(unused_elements)} of {units.counted(elements, 'number')}) are in no optimizer that "
            "stepped, and nothing else changes them.",
            f"The backward pass takes {units.share(backward)} of the loop.",
        ),
        options=(
            Option(
                f"Call requires_grad_(False) on parameters that are not trained{where}.",
                (
                    1.0 - min(limits.max_backward_share, limits.max_saved * part) * backward,
                    1.0 - limits.min_saved * share,
                ),
                details="If they should be trained, give them to the optimizer.",
            ),
        ),
        verdict="compute-bound",
        location=locate(line),
        confidence="inferred",
        claims=pl.col("part") == "backward",
    )


def _cleared(
    evidence: Evidence, trainer: Trainer, cleared: ClearedGradients, limits: Limits
) -> Finding | Clear:
    """Return the finding about a model whose gradients are cleared before they are used."""
    account = evidence.get(find_account, trainer)
    backward = account.shares["backward"]
    forward = account.share_of((pl.col("part") == "forward") & (pl.col("name") == cleared.model))
    # Its backward passes take at most the same share of all backward passes as its forward passes of all forward ones.
    most = backward * forward / account.shares["forward"] if forward else 0.0
    share = min(most, limits.backward_ratio * forward) * cleared.part
    if share < limits.minor_share:
        return Clear(
            f"Gradients of {cleared.model} are cleared unused, which costs {units.share(share)} of the loop."
        )
    is_one_line = cleared.part > limits.min_calls_share
    line = busiest_line(account, "forward", cleared.model, limits.min_calls_share) if is_one_line else None
    where = f"; most of its calls are at {place(line, '')}" if line else ""
    return Finding(
        title=f"About {SHARE} of the training loop computes gradients of {cleared.model} that are cleared before its "
        "optimizer uses them.",
        share=share,
        evidence=(
            f"In {units.count(cleared.unused)} of {units.count(cleared.cleared)} calls that clear gradients, its "
            "optimizer had not used the new gradients; no input of the model requires gradients.",
            f"{units.share(cleared.part)} of its backward passes are unneeded; its forward passes take "
            f"{units.share(forward)} of the loop, all backward passes {units.share(backward)}.",
        ),
        options=(
            Option(
                f"Detach the output of {cleared.model} where another model learns from it (fake.detach()), or call it "
                f"under torch.no_grad() there{where}.",
                (1.0 - min(most * limits.max_backward_share, 1.5 * share), 1.0 - limits.min_saved * share),
            ),
        ),
        verdict="compute-bound",
        location=locate(line),
        confidence="inferred",
        claims=pl.col("part") == "backward",
    )


def _names(wasted: dict[str, Gradients]) -> str:
    """Return the name of the first of them, and how many more there are."""
    model, gradients = next(iter(wasted.items()))
    more = sum(found.unused for found in wasted.values()) - 1
    others = f" and {units.count(more)} more" if more else ""
    return f"{gradients.first} of {model}{others}"


def _cleared_gradients(evidence: Evidence, trainer: Trainer, limits: Limits) -> list[ClearedGradients]:
    """Return the optimizers whose gradients are mostly cleared unused, of models that could have been detached."""
    found = []
    for key, value in evidence.get(find_facts, trainer.process).items():
        head, _, last = key.rpartition("/")
        if head.startswith("optimizer/") and last == "thrown" and (words := CLEARED_WORDS.fullmatch(value)):
            unused, cleared, steps, wasted, used, calls = map(int, words.groups()[:6])
            if unused > limits.min_cleared_share * cleared and calls > steps > 0 and wasted:
                optimizer = head.removeprefix("optimizer/")
                found.append(
                    ClearedGradients(optimizer, unused, cleared, steps, wasted, used, calls, words[7])
                )
    return found
