"""Attention is computed by separate products and a softmax instead of one fused kernel.

What it finds
    In a record of the GPU's kernels: a matrix product, a softmax and a matrix product again, on one stream with nothing
    but operations per element and copies between them. When the softmax and what stands between the products take 5 %
    of the recorded time or more.

Why it costs
    The scores of all pairs of positions are written to memory and read again several times. A fused kernel keeps them
    in registers (Dao et al., FlashAttention, 2022).

How the saving is worked out
    Inferred: at best all that stands between the products goes, at worst half of it. What the products themselves gain
    is not counted.

How to fix
    torch.nn.functional.scaled_dot_product_attention, or attn_implementation="sdpa" in transformers, with 16-bit types
    and head sizes that are multiples of 8. A mask as a tensor can keep the fastest kernels from being used.

When it is wrong
    With very short sequences there is nothing to gain. A softmax between two layers that is no attention (experts, a
    gate) looks the same; it takes little time.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernel_marks import LOG_SOFTMAX, SOFTMAX, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LARGE_SHARE = MINOR_SHARE
"""Of the recorded time."""

BETWEEN = ("elementwise", "copy", "reduction")
"""Classes of kernels that may stand between the products and the softmax: scale, mask, dropout, casts, their sums."""
MOST_BETWEEN = 8
"""Kernels between two products of one attention; eager code with a mask and dropout has five or six."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for products around a softmax."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    found = _attentions(of_kernels(gpu))
    share = min(1.0, int(found["ns"].sum()) / gpu.window_ns)
    fused = sum(kind.count for kind in gpu.classes if kind.name == "attention")
    if share < LARGE_SHARE:
        return Clear(
            f"{units.counted(fused, 'kernel')} of fused attention ran; softmax between separate products takes "
            f"{units.share(share)} of the recorded time."
        )
    return [
        Finding(
            title=f"{SHARE} of the GPU's time goes to attention that no fused kernel computes.",
            share=share,
            saving=without(share),
            evidence=(
                f"In {window(gpu)}: {units.counted(found.height, 'softmax', 'softmaxes')} between matrix products; "
                f"with what stands around them {units.duration(int(found['ns'].sum()))}.",
                f"The longest: {short(found.sort('ns', descending=True)['name'][0])}.",
            ),
            advice="Use F.scaled_dot_product_attention (attn_implementation=\"sdpa\" in transformers) "
            "with 16-bit types and a causal flag instead of a mask where that is meant.",
            confidence="inferred",
            of_window=True,
        )
    ]  # fmt: skip


def _attentions(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return name of the softmax, and time between the two products, of each attention that is made of pieces."""
    ordered = kernels.sort("track", "start").with_columns(
        (pl.col("class") == "gemm").alias("product"),
        marked(SOFTMAX, LOG_SOFTMAX).alias("softmax"),
    )
    foreign = ~pl.col("product") & ~pl.col("softmax") & ~pl.col("class").is_in(BETWEEN)
    other_loss = marked(LOG_SOFTMAX)
    # What stands between one product and the next, on one stream, is one group.
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
        pl.col("count") - 1 <= MOST_BETWEEN,
    )
