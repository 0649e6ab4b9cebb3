"""torch.compile compiles again while the training runs.

What it finds
    Compilations inside the steady loop that take at least 2 % of it, with the function, the guard that failed, and the
    functions for which Dynamo reached its recompile limit.

Why it costs
    A compilation takes as long as tens or thousands of steps, on the training thread. After eight of them (by default)
    for one function, Dynamo gives up, and the function runs uncompiled for the rest of the run.

How the gain is estimated
    Measured: the time of the compilations. At best all of it disappears; at worst half, if some of the cases remain. In
    a longer run without new cases the share gets smaller.

How to fix
    Check which guard failed. If shapes change: pad to a few lengths, or use torch.compile(dynamic=True) or
    torch._dynamo.mark_dynamic(). If a Python number, string or flag changes: pass it as a tensor, or keep it out of the
    compiled function.

When it is wrong
    When the run is short and each case comes once: a long run also pays for it only once.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.compilations import Compilations, Reason, find_compilations
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "compilations", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_saved_share: float = 0.5
    """Part of the time that is saved at worst, if some cases remain."""
    max_quoted: int = 3
    """How many reasons are quoted."""
    max_reason_length: int = 140
    """How many characters of Dynamo's message are quoted; the rest is for its developers."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for compilations in the steady loop."""
    compiled = evidence.get(find_compilations, trainer)
    if compiled.share < limits.min_reported_share:
        number = units.counted(compiled.count, "compilation")
        return Clear(f"{number} in the steady loop, {units.share(compiled.share)} of it.")
    step_ns = mean_step_ns(evidence, trainer)
    whole = compiled.share * step_ns
    return [
        Finding(
            title=f"{SHARE} of the training loop is spent in torch.compile recompilations, mostly of "
            f"{place(compiled.where, 'a function')}.",
            share=compiled.share,
            evidence=_words(compiled, limits),
            options=_options(compiled, saving(step_ns, limits.min_saved_share * whole, whole)),
            verdict="launch-bound" if trains_on_gpu(evidence, trainer) else "python-bound",
            location=locate(compiled.where),
            claims=pl.col("part") == "compile",
        )
    ]


def _words(compiled: Compilations, limits: Limits) -> tuple[str, ...]:
    """Return the measured figures and Dynamo's reasons."""
    words = [
        f"{units.counted(compiled.count, 'compilation')} after the warm-up, {units.count(compiled.again)} of them of "
        f"functions that were compiled before; {units.duration(compiled.ns)} in total."
    ]
    for mark, said in (
        ("recompile", "Recompiled because"),
        ("recompile_limit", "Recompile limit reached"),
        ("graph_break", "Graph break"),
    ):
        reasons = [reason for reason in compiled.reasons if reason.mark == mark]
        words += [_quote(said, reason, limits) for reason in reasons[: limits.max_quoted]]
        if len(reasons) > limits.max_quoted:
            words.append(f"And {units.count(len(reasons) - limits.max_quoted)} more like the last one.")
    return tuple(words)


def _quote(said: str, reason: Reason, limits: Limits) -> str:
    """Return a reason as a sentence."""
    short = reason.words[: limits.max_reason_length]
    return f"{said} ({place(reason.where, 'unknown line')}): {short}"


def _options(compiled: Compilations, saving: tuple[float, float]) -> tuple[Option, ...]:
    """Return what to change, depending on the guards that failed."""
    words = " ".join(reason.words for reason in compiled.reasons if reason.mark.startswith("recompile"))
    basis = f"{units.counted(compiled.count, 'compilation')}, {units.duration(compiled.ns)}"
    if "size mismatch" in words or "stride mismatch" in words:
        return (
            Option("Compile with dynamic=True: the shapes change.", saving, basis),
            Option("Pad the inputs to a few lengths.", saving, basis),
        )
    if words:
        return (
            Option(
                "Pass the value whose guard failed as a tensor, or remove it from the compiled function.",
                saving,
                basis,
                details="TORCH_LOGS=recompiles shows each case.",
            ),
        )
    return (
        Option(
            "Run every case once before the loop.",
            saving,
            basis,
            details="TORCH_LOGS=recompiles shows what compiles when.",
        ),
    )
