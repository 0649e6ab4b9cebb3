"""Many small elementwise operations run one after the other, each through GPU memory.

What it finds
    PyTorch kernels of a single elementwise operation (add, mul, relu, gelu, dropout…), in a record of GPU kernels:
    at least 20 % of the recorded time, and at least 2 % of it in consecutive kernels that a compiler could fuse into
    one.

Why it costs
    Such a kernel does few FLOPs per byte (ReLU with 16 bits: 0.25; NVIDIA, GPU Performance Background User's Guide),
    so its time is that of reading and writing memory. Consecutive kernels write and read again what one kernel could
    keep in registers.

How the gain is estimated
    Estimated: the longest kernel of each sequence remains. At best all others disappear, at worst half of them.

How to fix
    torch.compile, which fuses them with each other and with neighboring kernels; otherwise fused versions
    (F.scaled_dot_product_attention, fused optimizers, in-place activations). If torch.compile is in use, these kernels
    run outside of its graphs.

When it is wrong
    When consecutive kernels do not depend on each other, as in branches: then they cannot be fused.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.kernel_marks import NO_POINTWISE, POINTWISE, chains, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import loop_share, recorded, short, window
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import (
    CRITICAL_SHARE,
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    Scope,
)

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    large_share: float = CRITICAL_SHARE
    """Share of the recorded time, our choice: 12 recordings of ResNets and 3-D U-Nets had a normal 1 to 14 %."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for elementwise kernels that could be fused."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    kernels = of_kernels(gpu)
    pointwise = marked(POINTWISE, NO_POINTWISE)
    own = kernels.filter(pointwise)
    share = loop_share(evidence, trainer, gpu, int(own["ns"].sum()))
    rows = chains(kernels, pointwise)
    fusible = loop_share(evidence, trainer, gpu, int((rows["ns"] - rows["longest"]).sum()))
    if share < limits.large_share or fusible < limits.min_reported_share:
        return Clear(
            f"Elementwise kernels take {units.share(share)} of the recorded time; fusing consecutive ones would save "
            f"at most {units.share(fusible)}."
        )
    levers = evidence.get(find_levers, trainer)
    largest = own.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    longest = int(rows["count"].max() or 0)  # type: ignore[arg-type]
    return [
        Finding(
            title=f"{SHARE} of the GPU's time is elementwise operations that could be fused.",
            share=fusible,
            evidence=(
                f"In {window(gpu)}: {units.counted(own.height, 'such kernel')}, {units.share(share)} of the time; "
                f"up to {longest} in a row.",
                f"The largest: {short(largest['name'][0])}, {units.duration(largest['ns'][0])}.",
            ),
            options=_options(levers, fusible),
            confidence="inferred",
            scope=Scope.WINDOW,
        )
    ]


def _options(levers: Levers, fusible: float) -> tuple[Option, ...]:
    """Return the ways to fuse the kernels."""
    saving = (1.0 - fusible, 1.0 - fusible / 2)
    basis = f"{units.share(fusible)} of the GPU's time is in chains"
    layers = Option("Use fused versions of the layers that they belong to.", saving, basis)
    if levers.is_compiled:
        breaks = Option(
            "Look for graph breaks (TORCH_LOGS=graph_breaks): they run outside of what torch.compile compiles.",
            saving,
            basis,
        )
        return (breaks, layers)
    return (Option("Use torch.compile to fuse them.", saving, basis, "compile"), layers)
