"""Validation takes a large part of the loop.

What it finds
    Validation phases (code that uses the model without training it) that take at least 20 % of the training loop.

Why it costs
    Validation does not train the model. How much of it is needed is a choice, often one that was never made explicitly.

How the gain is estimated
    Arithmetic on the measured share: at worst half of it is saved (validate half as often), at best three quarters (a
    quarter as often). Where most of it is a loop, at best nine tenths of the loop's samples.

How to fix
    Where py-spy's samples show that most of it is a loop whose passes do not depend on each other, work on all at once.
    Validate less often or on a part of the data, with a larger batch, under torch.inference_mode(). Where starting
    DataLoader workers is most of a validation, keep the workers alive or load a small set without workers.

When it is wrong
    When validation is the purpose of the run, or the run was stopped after its first epochs.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.account.what_if import NEARLY_ALL, NOTHING, without
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.model_loops import find_model_loop
from perfwrap.measures.loop.stacks import HotFunction, Sampled, sampled_validation
from perfwrap.measures.steps.validation import Validation, find_validation
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.loop.evaluation_with_grad import without_gradients
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    Option,
    locate,
    named,
    place,
)
from perfwrap.rules.stack_samples import JOINED, join_passes, main_function, quote, where

NEEDS = ("steady_steps",)

WORKER_STARTS = (pl.col("part") == "validation") & pl.col("operation").is_in(["loader_start", "data_end"])
"""The segments of the account in which a validation starts or ends its workers."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    large_share: float = 0.20
    """Share of the loop from which validation is a problem; below it, it is a choice."""
    min_saved_share: float = 0.5
    max_saved_share: float = 0.75
    """Share of the validation time that is saved by validating half as often, and a quarter as often."""
    max_grad_saved: float = 0.4
    """Part of a forward pass that is saved at best without gradients."""
    min_start_share: float = 0.5
    """Share of the validation time that its workers take to start and end, from which the fix is about the workers."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the validation phases of the loop."""
    validation = evidence.get(find_validation, trainer)
    share = validation.share
    if share < limits.large_share:
        return Clear(f"Validation takes {units.share(share)} of the loop.")
    sampled = sampled_validation(evidence, trainer)
    words = [*_words(evidence, trainer, validation, limits), *quote(sampled, "of the validation")]
    starts = evidence.get(find_account, trainer).share_of(WORKER_STARTS)
    if starts >= limits.min_start_share * share:
        return [_of_workers(evidence, trainer, share, starts, words)]
    line = busiest_line(evidence.get(find_account, trainer), "validation")
    hottest = main_function(sampled)
    loop = _loop(evidence, trainer, sampled, hottest, share)
    return [
        Finding(
            title=f"{SHARE} of the training loop is validation, mostly at {place(line, 'the script')}.",
            share=share,
            evidence=tuple(words),
            options=(*loop, *_less(validation, limits), *_inference(validation, limits)),
            verdict="checkpoint/validation-bound",
            location=locate(hottest.line if hottest and loop else line),
            claims=pl.col("part") == "validation",
        )
    ]


def _words(evidence: Evidence, trainer: Trainer, validation: Validation, limits: Limits) -> list[str]:
    """Return what is known about the validation phases."""
    is_estimated = (pl.col("part") == "validation") & pl.col("estimated")
    recorded = " in detail" if evidence.get(find_account, trainer).share_of(is_estimated) > 0 else ""
    words = [
        f"Recorded{recorded}: {units.counted(validation.count, 'validation phase')}, "
        f"{units.duration(validation.median_ns)} each (median)."
        if validation.median_ns is not None
        else "It was in pauses of the recording; py-spy's samples show its share.",
        "Validation is all code that runs the model without training it: evaluations, drawn samples, plots.",
    ]
    if validation.grad_share >= limits.min_reported_share:
        at = place(validation.grad_line, "some lines")
        words.append(f"Forward passes of the validation at {at} ran with gradients enabled.")
    return words


def _less(validation: Validation, limits: Limits) -> tuple[Option, Option]:
    """Return the options to validate less."""
    share = validation.share
    saved = (1.0 - limits.max_saved_share * share, 1.0 - limits.min_saved_share * share)
    basis = (
        f"{units.counted(validation.count, 'validation')} of {units.duration(validation.median_ns)}"
        if validation.median_ns is not None
        else f"{units.share(share)} of the loop"
    )
    return (
        Option("Validate half as often.", saved, basis, "no-validation"),
        Option("Validate on a part of the data, with a larger batch.", saved, basis, "no-validation"),
    )


def _inference(validation: Validation, limits: Limits) -> tuple[Option, ...]:
    """Return the option to validate without gradients, if much of the validation has them."""
    if validation.grad_share < limits.min_reported_share:
        return ()
    return (
        Option(
            without_gradients(validation),
            (1.0 - limits.max_grad_saved * validation.grad_share, 1.0),
            f"{units.share(validation.grad_share)} of the loop is validation with gradients",
        ),
    )


def _loop(
    evidence: Evidence, trainer: Trainer, sampled: Sampled | None, hottest: HotFunction | None, share: float
) -> tuple[Option, ...]:
    """Return what to change where most of the validation is a loop whose passes do not depend on each other."""
    if sampled is None or hottest is None:
        return ()
    loop = find_model_loop(evidence, trainer, hottest.line)
    if loop is None:
        return ()
    part = hottest.count / sampled.count
    basis = f"{units.share(part * share)} of the loop is {where(hottest)}"
    return (Option(join_passes(hottest, loop), (1.0 - JOINED * part * share, 1.0), basis),)


def _of_workers(
    evidence: Evidence, trainer: Trainer, share: float, starts: float, words: list[str]
) -> Finding:
    """Return the finding about validations that mostly start and end their workers; their first start remains."""
    count = max(1, evidence.get(find_validation, trainer).count)
    segments = evidence.get(find_account, trainer).segments.filter(WORKER_STARTS)
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    name = segments.group_by("name").agg(length).sort("ns", "name", descending=[True, False])["name"][0]
    loader = next((each for each in evidence.get(find_loaders, trainer) if each.name == name), None)
    where = named("the DataLoader", loader.created if loader else None)
    is_persistent = loader is not None and loader.persistent_workers is True
    workers = units.counted(loader.workers, "worker") if loader and loader.workers else "workers"
    return Finding(
        title=f"{SHARE} of the training loop starts and ends the {workers} of {where} for validation, which takes "
        f"{units.share(share)} in all.",
        share=starts,
        evidence=tuple(words),
        options=(
            Option(
                f"Create {where} only once."
                if is_persistent
                else f"Pass persistent_workers=True to {where} and create it only once.",
                without(starts * (count - 1) / count, NEARLY_ALL),
                f"{units.share(starts)} of the loop starts and ends workers",
                None if is_persistent else "persistent-workers",
            ),
            Option(
                f"Pass num_workers=0 to {where}, if a validation has few batches.",
                without(starts, NOTHING),
            ),
        ),
        verdict="data-bound",
        location=locate(loader.created if loader else None),
        claims=pl.col("part") == "validation",
    )
