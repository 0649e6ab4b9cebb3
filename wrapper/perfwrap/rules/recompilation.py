"""torch.compile compiles again while the training runs.

What it finds
    Compilations inside the steady loop that take 2 % of it or more: with the function, the guard that failed, and
    functions that Dynamo gave up on.

Why it costs
    A compilation takes as long as tens or thousands of steps, on the training thread. After eight of them (by default)
    for one function Dynamo gives up, and the function runs uncompiled for the rest of the run.

How the saving is worked out
    Measured: the time of the compilations. At best all of it goes; at worst half, when some of the cases remain. A
    longer run with no new cases dilutes it.

How to fix
    See which guard failed. Shapes that change: pad to a few lengths, or torch.compile(dynamic=True), or
    torch._dynamo.mark_dynamic(). A Python number, string or flag that changes: pass it as a tensor, or keep it out of
    the compiled function.

When it is wrong
    When the run is short and each case comes once: a long run pays for it once, too.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.compilations import Compilations, Reason
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps", "compilations", "options")

LEAST_GONE = 0.5
"""Part of the time that goes at worst, when some cases remain."""

MOST_TOLD = 3
"""Reasons that are quoted."""

LONGEST_REASON = 140
"""Characters of Dynamo's own words that are quoted; they go on with what its developers want to know."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for compilations in the steady loop."""
    compiled = evidence.compilations(trainer)
    if compiled.share < QUIET_SHARE:
        number = units.counted(compiled.count, "compilation")
        return Clear(f"{number} in the steady loop, {units.share(compiled.share)} of it.")
    step_ns = mean_step_ns(evidence, trainer)
    whole = compiled.share * step_ns
    return [
        Finding(
            title=f"{SHARE} of the training loop is torch.compile at work, mostly on "
            f"{place(compiled.where, 'a function')}.",
            share=compiled.share,
            saving=saving(step_ns, LEAST_GONE * whole, whole),
            evidence=_words(compiled),
            advice=_advice(compiled),
            verdict="launch-bound" if trains_on_gpu(evidence, trainer) else "python-bound",
            location=locate(compiled.where),
            claims=pl.col("part") == "compile",
        )
    ]


def _words(compiled: Compilations) -> tuple[str, ...]:
    """Return what was seen, and Dynamo's own reasons."""
    words = [
        f"{units.counted(compiled.count, 'compilation')} after the warm-up, {units.count(compiled.again)} of them of "
        f"functions compiled before; {units.duration(compiled.ns)} in all."
    ]
    for mark, said in (
        ("recompile", "Compiled anew because"),
        ("recompile_limit", "Dynamo gave up compiling it anew"),
        ("graph_break", "The graph breaks"),
    ):
        reasons = [reason for reason in compiled.reasons if reason.mark == mark]
        words += [_quote(said, reason) for reason in reasons[:MOST_TOLD]]
        if len(reasons) > MOST_TOLD:
            words.append(f"And {units.count(len(reasons) - MOST_TOLD)} more of the last kind.")
    return tuple(words)


def _quote(said: str, reason: Reason) -> str:
    """Return a reason as a sentence."""
    short = reason.words[:LONGEST_REASON]
    return f"{said} ({place(reason.where, 'unknown line')}): {short}"


def _advice(compiled: Compilations) -> str:
    """Return what to change, by the guards that failed."""
    words = " ".join(reason.words for reason in compiled.reasons if reason.mark.startswith("recompile"))
    if "size mismatch" in words or "stride mismatch" in words:
        return "Shapes change: pad them to a few lengths, or compile with dynamic=True."
    if words:
        return (
            "Pass the value whose guard failed as a tensor, or take it out of the compiled function; "
            "TORCH_LOGS=recompiles shows each."
        )
    return "Run every case once before the loop, and see TORCH_LOGS=recompiles for what compiles when."
