"""Attention runs as separate matrix products and a softmax instead of one fused kernel.

What it finds
    In a record of the GPU's kernels: a matrix product, a softmax and another matrix product on one stream, with only
    elementwise operations and copies between them. Reported if the softmax and the kernels between the products take at
    least 5 % of the recorded time.

Why it costs
    The scores of all pairs of positions are written to memory and read again several times. A fused kernel keeps them
    in registers (Dao et al., FlashAttention, 2022).

How the gain is estimated
    Estimated: at best everything between the products disappears, at worst half of it. Savings in the products
    themselves are not counted.

How to fix
    torch.nn.functional.scaled_dot_product_attention, or attn_implementation="sdpa" in transformers, with 16-bit types
    and head sizes that are multiples of 8. A mask given as a tensor can prevent the fastest kernels.

When it is wrong
    With very short sequences there is nothing to gain. A softmax between two layers that is not attention (experts, a
    gate) looks the same, but takes little time.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.kernel_marks import LOG_SOFTMAX, SOFTMAX, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, short, window
from perfwrap.rules.levers import find_levers
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    large_share: float = MINOR_SHARE
    """Share of the recorded time."""
    max_between: int = 8
    """Kernels between two products of one attention; eager code with a mask and dropout has five or six."""


BETWEEN = ("elementwise", "copy", "reduction")
"""Classes of kernels that may be between the products and the softmax: scale, mask, dropout, casts, sums."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for matrix products around a softmax."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    found = _attentions(of_kernels(gpu), limits)
    share = loop_share(evidence, trainer, gpu, int(found["ns"].sum()))
    fused = sum(kind.count for kind in gpu.classes if kind.name == "attention")
    if share < limits.large_share:
        return Clear(
            f"{units.counted(fused, 'fused attention kernel')} ran; softmax between separate products takes "
            f"{units.share(share)} of the recorded time."
        )
    types = "" if evidence.get(find_levers, trainer).half else " with 16-bit types"
    return [
        Finding(
            title=f"{SHARE} of the GPU's time is attention without a fused kernel.",
            share=share,
            evidence=(
                f"In {window(gpu)}: {units.counted(found.height, 'softmax', 'softmaxes')} between matrix products; "
                f"with the kernels around them {units.duration(int(found['ns'].sum()))}.",
                f"The longest: {short(found.sort('ns', descending=True)['name'][0])}.",
            ),
            options=(
                Option(
                    'Use F.scaled_dot_product_attention (attn_implementation="sdpa" in transformers)'
                    f"{types}, and is_causal=True instead of a mask if possible.",
                    without(share),
                ),
            ),
            confidence="inferred",
            scope=Scope.WINDOW,
        )
    ]


def _attentions(kernels: pl.DataFrame, limits: Limits) -> pl.DataFrame:
    """Return the name of the softmax and the time between the products, for each unfused attention."""
    ordered = kernels.sort("track", "start").with_columns(
        (pl.col("class") == "gemm").alias("product"),
        marked(SOFTMAX, LOG_SOFTMAX).alias("softmax"),
    )
    foreign = ~pl.col("product") & ~pl.col("softmax") & ~pl.col("class").is_in(BETWEEN)
    other_loss = marked(LOG_SOFTMAX)
    # The kernels between one product and the next on one stream form a group.
    number = (pl.col("product") | (pl.col("track") != pl.col("track").shift(1)).fill_null(True)).cum_sum()
    grouped = ordered.with_columns(number.alias("group"))
    groups = grouped.group_by("group", maintain_order=True).agg(
        pl.col("track").first(),
        pl.col("product").first().alias("after_product"),
        pl.col("softmax").sum().alias("softmaxes"),
        (foreign | other_loss).any().alias("foreign"),
        pl.len().alias("count"),
        pl.col("ns").filter(~pl.col("product")).sum().alias("ns"),
        pl.col("name").filter(pl.col("softmax")).first().alias("name"),
    )
    followed = (pl.col("track").shift(-1) == pl.col("track")) & pl.col("after_product").shift(-1)
    return groups.filter(
        "after_product",
        followed.fill_null(False),
        pl.col("softmaxes") == 1,
        ~pl.col("foreign"),
        pl.col("count") - 1 <= limits.max_between,
    )
