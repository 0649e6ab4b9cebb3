"""Many small operations on each element run one after the other, each through the GPU's memory.

What it finds
    PyTorch's kernels of a single operation per element (add, mul, relu, gelu, dropout…), in a record of the GPU's
    kernels: 20 % of the recorded time or more, and 2 % or more of it in kernels that follow one another directly, which
    a compiler would make one of.

Why it costs
    Such a kernel does few FLOPs for each byte (ReLU with 16 bits 0.25: NVIDIA, GPU Performance Background User's
    Guide): its time is that of reading and writing memory. Several in a row write and read again what one could keep
    in registers.

How the saving is worked out
    Inferred: of each row of such kernels the longest stays. At best all others go, at worst half of them.

How to fix
    torch.compile, which fuses them with one another and with their neighbours; else fused forms
    (F.scaled_dot_product_attention, fused optimizers, in-place activations).

When it is wrong
    Where their inputs do not follow one from the other, as in branches: kernels in a row are then no chain.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernel_marks import NO_POINTWISE, POINTWISE, chains, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import CRITICAL_SHARE, QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LARGE_SHARE = CRITICAL_SHARE
"""Of the recorded time, by our choice: 12 recordings of ResNets and 3-D U-Nets had 1 to 14 %, which is ordinary."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for pointwise kernels that could be one."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    kernels = of_kernels(gpu)
    pointwise = marked(POINTWISE, NO_POINTWISE)
    own = kernels.filter(pointwise)
    share = min(1.0, int(own["ns"].sum()) / gpu.window_ns)
    rows = chains(kernels, pointwise)
    fusible = min(1.0, int((rows["ns"] - rows["longest"]).sum()) / gpu.window_ns)
    if share < LARGE_SHARE or fusible < QUIET_SHARE:
        return Clear(
            f"{units.share(share)} of the recorded time goes to kernels of one operation per element; fusing those in "
            f"a row would save {units.share(fusible)} at most."
        )
    largest = own.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    longest = int(rows["count"].max() or 0)  # type: ignore[arg-type]
    return [
        Finding(
            title=f"{SHARE} of the GPU's time goes to operations per element that could be fused.",
            share=fusible,
            saving=(1.0 - fusible, 1.0 - fusible / 2),
            evidence=(
                f"Seen in {window(gpu)}: {units.counted(own.height, 'such kernel')}, {units.share(share)} of the time; "
                f"up to {longest} in a row.",
                f"The largest: {short(largest['name'][0])}, {units.duration(largest['ns'][0])}.",
            ),
            advice="Let torch.compile fuse them, or use fused forms of what they are part of.",
            experiment="compile",
            confidence="inferred",
            of_window=True,
        )
    ]
