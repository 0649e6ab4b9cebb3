"""Convolutions have their tensors turned from channels-first to channels-last and back.

What it finds
    Kernels of cuDNN or MIOpen that only change the layout of tensors (nchwToNhwc, nhwcToNchw and the like), in a record
    of the GPU's kernels: 5 % of the recorded time or more.

Why it costs
    Tensor cores work on channels-last tensors. Where the program keeps them channels-first, the library turns each one
    around before and after a convolution: a read and a write of the whole tensor that computes nothing.

How the saving is worked out
    Inferred: at best all of these kernels go, at worst half of them: layers that know no channels-last stay.

How to fix
    model = model.to(memory_format=torch.channels_last), and the same of each batch; channels_last_3d for volumes.

When it is wrong
    With channels that are few or no multiple of 8 the library may convert all the same.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.kernel_marks import LAYOUT, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LARGE_SHARE = MINOR_SHARE
"""Of the recorded time; below it a change of the whole model is not worth the trouble."""

VOLUMES = r"convolveNd|Conv3d|3d_|ncdhw|vol2col|depthwise3d"
"""Marks of convolutions over volumes, in names of kernels."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for kernels that only change the layout."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    kernels = of_kernels(gpu)
    rows = kernels.filter(marked(LAYOUT))
    share = min(1.0, int(rows["ns"].sum()) / gpu.window_ns)
    if share < LARGE_SHARE:
        return Clear(f"{units.share(share)} of the recorded time goes to changes of layout.")
    return [_finding(evidence, trainer, gpu, rows, share)]


def _finding(
    evidence: Evidence, trainer: Trainer, gpu: GpuActivity, rows: pl.DataFrame, share: float
) -> Finding:
    """Return the finding."""
    volumes = not of_kernels(gpu).filter(marked(VOLUMES)).is_empty()
    form = "channels_last_3d" if volumes else "channels_last"
    words = [
        f"Seen in {window(gpu)}: {units.counted(rows.height, 'change', 'changes')} of layout, mostly "
        f"{short(rows['name'].mode().sort()[0])}."
    ]
    kept = [value for key, value in evidence.facts(trainer.process).items() if key.endswith("/channels_last")]
    if kept:
        words.append(f"Weights of convolutions that are kept in channels-last order: {', '.join(kept)}.")
    return Finding(
        title=f"{SHARE} of the GPU's time goes to turning tensors between channels-first and channels-last.",
        share=share,
        saving=without(share),
        evidence=tuple(words),
        advice=f"Keep model and batches in one layout: model.to(memory_format=torch.{form}) and "
        f"batch.to(memory_format=torch.{form}).",
        experiment="channels-last",
        confidence="inferred",
        of_window=True,
    )
