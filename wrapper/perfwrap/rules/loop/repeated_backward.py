"""Several losses each run their own backward pass through the same graph.

What it finds
    Several consecutive backward passes in a step that calls one model, all but the last with retain_graph=True, if the
    passes other than the longest take at least 5 % of the training loop. Passes with a model call, zero_grad, gradient
    clipping or an optimizer step between them do not count, because each may have its own graph or use. Passes for some
    inputs only (inputs=) do not count either.

Why it costs
    Gradients of several losses add up. Each pass visits everything that its loss depends on, so the shared part,
    usually most of the model, is visited once per loss. One pass from the sum visits it once.

How the gain is estimated
    The passes are measured. At best one combined pass takes as long as the longest of them, and the rest of the step
    gets faster; at worst 75 % of the others disappears. On a GPU the lower bound is no gain, because the host
    may not be the limit.

How to fix
    Add the losses and call backward once: (loss_a + loss_b).backward(), or torch.autograd.backward([loss_a, loss_b]).
    retain_graph=True is then unnecessary, and memory is freed earlier.

When it is wrong
    When something reads the gradients between the passes (their norms, conflicts between tasks). When the losses share
    no part of the model.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import MOST, best_without
from perfwrap.measures.dataflow.wasted_work import REPEATED
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.call_sites import find_call_sites
from perfwrap.measures.loop.repeated_backward import RepeatedBackward, find_repeated_backward
from perfwrap.measures.models import find_models
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, locate, place
from perfwrap.rules.wasted_step import explains

NEEDS = ("steady_steps", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    min_saved_share: float = MOST
    """Part of the extra passes' time that is saved at worst if they share a model."""
    no_model: float = 0.5
    one_model: float = 1.5
    """Mean model calls before the passes of a step, between which the passes share one graph."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for backward passes through a graph that another pass has visited."""
    keeping = [
        site.where
        for site in evidence.get(find_call_sites, trainer, "backward")
        if site.options.get("retain_graph") == "True"
    ]
    if not keeping:
        return Clear("No recorded backward pass keeps its graph for another one.")
    models = {model.name for model in evidence.get(find_models, trainer) if model.kind is not None}
    found = find_repeated_backward(
        evidence.timeline, trainer, evidence.get(find_steps, trainer), keeping, models
    )
    step_ns = mean_step_ns(evidence, trainer)
    share = found.vain_ns / step_ns if found is not None and step_ns else 0.0
    if found is None or share < limits.minor_share:
        return Clear(f"Repeated passes through one graph take {units.share(share)} of the loop.")
    if explains(evidence, trainer, (REPEATED,), found.lines[0]):
        return Clear("Explained by repeated_work.")
    if trainer.rank is not None and len(evidence.get(find_trainers)) > 1:
        return NotChecked("With several ranks, a backward pass also waits for other ranks.")
    if not limits.no_model <= found.forwards < limits.one_model:
        return NotChecked(
            "It is unknown whether the backward passes share a graph: not exactly one model is called before them."
        )
    return [_finding(found, share, trains_on_gpu(evidence, trainer), limits)]


def _finding(found: RepeatedBackward, share: float, on_gpu: bool, limits: Limits) -> Finding:
    """Return the finding about the backward passes of the loop."""
    best, worst = best_without(share), 1.0 - limits.min_saved_share * share
    where = found.lines[0]
    many = units.number(found.passes)
    own = (pl.col("operation") == "backward") & (pl.col("part") == "backward")
    return Finding(
        title=f"{SHARE} of the training loop repeats backward passes through the same graph, at "
        f"{place(where, 'one line')}.",
        share=share,
        evidence=(
            f"A step runs {many} consecutive backward passes with retain_graph=True: together "
            f"{units.duration(found.ns_per_step)}, {units.duration(found.vain_ns)} of it beyond the longest.",
        ),
        options=(
            Option(
                f"Add the losses and call backward() once at {place(where, 'that line')}.",
                (best, 1.0 if on_gpu else worst),
                details="The gradients are the same, and the shared part is visited once. Not if something reads the "
                "gradients between the passes.",
            ),
        ),
        verdict="compute-bound",
        location=locate(where),
        confidence="inferred",
        claims=own
        & pl.any_horizontal(
            (pl.col("file") == line.file) & (pl.col("line") == line.line) for line in found.lines
        ),
    )
