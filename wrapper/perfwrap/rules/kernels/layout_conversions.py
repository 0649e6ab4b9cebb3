"""Convolutions convert tensors between channels-first and channels-last.

What it finds
    Kernels of cuDNN or MIOpen that only change the layout of tensors (nchwToNhwc, nhwcToNchw and similar), in a record
    of the GPU's kernels: at least 5 % of the recorded time.

Why it costs
    Tensor cores need channels-last tensors. If the program keeps them channels-first, the library converts each tensor
    before and after a convolution: a read and a write of the whole tensor without computation.

How the gain is estimated
    Estimated: at best all of these kernels disappear, at worst half, because layers without channels-last remain.

How to fix
    model = model.to(memory_format=torch.channels_last), and the same for each batch; channels_last_3d for volumes.

When it is wrong
    If the number of channels is small or not a multiple of 8, the library may convert anyway.
"""

from __future__ import annotations

import re

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.kernel_marks import LAYOUT, marked, of_kernels
from perfwrap.measures.models import find_models
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, short, window
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, Option, Scope

NEEDS = ("trainer", "kernels")

IN_FULL = re.compile(r"(\d+) of \1")
"""The fact of a model whose weights are all in channels-last order."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    large_share: float = MINOR_SHARE
    """Share of the recorded time; below it, changing the whole model is not worth the effort."""


VOLUMES = r"convolveNd|Conv3d|3d_|ncdhw|vol2col|depthwise3d"
"""Patterns for convolutions over volumes in kernel names."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for kernels that only change the layout."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    kernels = of_kernels(gpu)
    rows = kernels.filter(marked(LAYOUT))
    share = loop_share(evidence, trainer, gpu, int(rows["ns"].sum()))
    if share < limits.large_share:
        return Clear(f"Layout changes take {units.share(share)} of the recorded time.")
    return [_finding(evidence, trainer, gpu, rows, share)]


def _finding(
    evidence: Evidence, trainer: Trainer, gpu: GpuActivity, rows: pl.DataFrame, share: float
) -> Finding:
    """Return the finding."""
    volumes = not of_kernels(gpu).filter(marked(VOLUMES)).is_empty()
    form = "channels_last_3d" if volumes else "channels_last"
    words = [
        f"In {window(gpu)}: {units.counted(rows.height, 'layout change')}, mostly "
        f"{short(rows['name'].mode().sort()[0])}."
    ]
    models = evidence.get(find_models, trainer)
    kept = [model.channels_last for model in models if model.channels_last is not None]
    is_kept = bool(kept) and all(IN_FULL.fullmatch(count) for count in kept)
    if kept:
        words.append(f"Convolution weights in channels-last order: {', '.join(kept)}.")
    return Finding(
        title=f"{SHARE} of the GPU's time converts tensors between channels-first and channels-last.",
        share=share,
        evidence=tuple(words),
        options=(
            Option(
                f"The weights are in channels-last order already: keep the batches and what is made inside the model "
                f"in it, too, with batch.to(memory_format=torch.{form})."
                if is_kept
                else f"Keep model and batches in one layout: model.to(memory_format=torch.{form}) and "
                f"batch.to(memory_format=torch.{form}).",
                without(share),
                experiment=None if is_kept else "channels-last",
            ),
        ),
        confidence="inferred",
        scope=Scope.WINDOW,
    )
