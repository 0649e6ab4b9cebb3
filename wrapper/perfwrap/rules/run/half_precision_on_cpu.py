"""The model computes in 16 bits on a processor without instructions for it.

What it finds
    Models on a CPU that compute in float16 or bfloat16, under autocast or with such weights, where the processor has
    no arithmetic in that type, in a loop in which forward pass, backward pass and optimizer take at least 10 %, and at
    least 2 ms of a step.

Why it costs
    Such a processor converts every number to float32 to compute with it, and back. For some operations PyTorch then
    uses a plain loop instead of an optimized library. 16 bits pay off on GPUs and on processors with AVX512-BF16,
    AVX512-FP16, AMX, or the corresponding units of Arm.

How the gain is estimated
    Estimated: with linear layers, convolutions and transformer layers of 5 to 51 ms, float32 took 71 to 96 % less than
    float16 or bfloat16, under autocast or as weights; an LSTM took 88 to 90 % less than with such weights (one thread,
    AVX2, torch 2.13; scripts/accuracy/half_precision.py). A small script of convolutions took 60 % less as a whole. The
    gain is 50 to 95 % of forward, backward and optimizer, and the share is the middle of that. Not checked on
    processors without AVX2 or with AVX-512, or with several ranks, where a backward pass also waits.

How to fix
    Train in float32 on this machine: switch autocast off where the device is a CPU
    (torch.autocast(device, enabled=device != "cpu")), or load the model without dtype=torch.float16.

When it is wrong
    When 16 bits are needed so that the model fits into memory, or to test on a CPU what a GPU will compute. Autocast
    that a model switches on by itself, inside of its forward pass, is not recorded.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.models import Model
from perfwrap.measures.precision import (
    INSTRUCTIONS,
    HalfPrecision,
    find_half_precision,
    find_processor_features,
    has_instructions,
)
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.model import MAJOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    major_share: float = MAJOR_SHARE
    min_half_share: float = 0.9
    """Share of the models' elements from which they compute in 16 bits."""
    min_saved_share: float = 0.5
    max_saved_share: float = 0.95
    """Share of forward, backward and optimizer that float32 saves (measured, see above)."""
    min_step_ns: int = 2_000_000
    """Part of a step; below it, calls of torch cost more than arithmetic."""


WITH, WITHOUT = "avx2", "avx512f"
"""What the processor of the measurement has, and has not."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the types in which the models compute."""
    half = evidence.get(find_half_precision, trainer)
    if half is None or half.share < limits.min_half_share:
        return Clear("The models do not compute in 16 bits.")
    if trains_on_gpu(evidence, trainer) or not all(_is_on_cpu(model, half) for model in half.models):
        return Clear("The models are not on a CPU.")
    features = evidence.get(find_processor_features, trainer)
    if features is None:
        return NotChecked("The processor's instructions were not recorded (run with monitors, on Linux).")
    name = half.kind.removeprefix("torch.")
    if has_instructions(features, half.kind):
        return Clear(f"The processor has instructions for {name}.")
    if WITH not in features or WITHOUT in features:
        return NotChecked(f"The cost of {name} is known for processors with AVX2 and without AVX-512 only.")
    if trainer.rank is not None and len(evidence.get(find_trainers)) > 1:
        return NotChecked("With several ranks, a backward pass also waits for other ranks.")
    account = evidence.get(find_account, trainer)
    compute = sum(account.shares[part] for part in COMPUTE_PARTS)
    if compute < limits.major_share or compute * mean_step_ns(evidence, trainer) < limits.min_step_ns:
        return Clear(f"Work in {name} takes {units.share(compute)} of the loop.")
    return [_finding(half, name, compute, limits)]


def _is_on_cpu(model: Model, half: HalfPrecision) -> bool:
    """Return whether a model computes in that type on a CPU."""
    return model.device == "cpu" and (not half.by_autocast or (model.autocast or "").startswith("cpu "))


def _finding(half: HalfPrecision, name: str, compute: float, limits: Limits) -> Finding:
    """Return the finding."""
    least, most = limits.min_saved_share, limits.max_saved_share
    first, more = half.models[0].name, len(half.models) - 1
    models = f"{first} and {more} more" if more else first
    how = f"run under {name} autocast" if half.by_autocast else f"have {name} weights"
    if not more:
        how = how.replace("run", "runs").replace("have", "has")
    return Finding(
        title=f"About {SHARE} of the training loop is lost to {name} on a processor without instructions for it: "
        f"{models} {how}.",
        share=(least + most) / 2 * compute,
        evidence=(
            f"The processor has none of {', '.join(sorted(INSTRUCTIONS[half.kind]))}; forward, backward and optimizer "
            f"take {units.share(compute)} of the loop.",
        ),
        options=(
            Option(
                "Train in float32 on this machine: "
                + (
                    'switch autocast off on a CPU, e.g. torch.autocast(device, enabled=device != "cpu").'
                    if half.by_autocast
                    else f"create or load the model without {half.kind}."
                ),
                (1.0 - most * compute, 1.0 - least * compute),
            ),
        ),
        verdict="compute-bound",
        confidence="inferred",
        claims=pl.col("part").is_in([*COMPUTE_PARTS]),
    )
