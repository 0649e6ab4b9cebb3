"""Each loss has a backward pass of its own, all through the same graph.

What it finds
    Several backward passes one after the other in a step that calls one model, all but the last with
    retain_graph=True, where 5 % of the training loop or more goes into passes beyond the longest one. Passes with a
    call of the model, zero_grad, gradient clipping or a step of an optimizer between them do not count: there each has
    a graph, or a use, of its own. Nor do passes for some inputs only (inputs=).

Why it costs
    Gradients of several losses add up. Each pass goes through all that its loss depends on, so what the losses share,
    usually most of the model, is gone through once for each of them. One pass from their sum goes through it once.

How the saving is worked out
    The passes are measured. At best one pass for all takes as long as the longest of them; at worst half of the rest
    goes. On a GPU it may be nothing, where the host is not what holds it back.

How to fix
    Add the losses up and call backward once: (loss_a + loss_b).backward(), or torch.autograd.backward([loss_a,
    loss_b]). retain_graph=True is then not needed, and memory is let go of earlier.

When it is wrong
    When something looks at the gradients between the passes (their norms, conflicts between tasks). When the losses
    share no part of the model.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.repeated_backward import RepeatedBackward, find_repeated_backward
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("steady_steps", "options")

LEAST_GONE = 0.5
"""Part of the time of the further passes that goes at worst where they share a model."""
NO_MODEL, ONE_MODEL = 0.5, 1.5
"""Calls of models before the passes of a step, on average, between which these share one's graph."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for passes over a graph that another pass has gone through."""
    keeping = [
        site.where
        for site in evidence.call_sites(trainer, "backward")
        if site.options.get("retain_graph") == "True"
    ]
    if not keeping:
        return Clear("No recorded backward pass keeps its graph for another one.")
    facts = evidence.facts(trainer.process)
    models = {key.rpartition("/")[0].removeprefix("model/") for key in facts if key.startswith("model/")}
    found = find_repeated_backward(evidence.timeline, trainer, evidence.steps(trainer), keeping, models)
    step_ns = mean_step_ns(evidence, trainer)
    share = found.vain_ns / step_ns if found is not None and step_ns else 0.0
    if found is None or share < MINOR_SHARE:
        return Clear(f"Going through one graph several times takes {units.share(share)} of the loop.")
    if trainer.rank is not None and len(evidence.trainers) > 1:
        return NotChecked("In a job of several ranks a backward pass also waits for the others.")
    if not NO_MODEL <= found.forwards < ONE_MODEL:
        return NotChecked(
            "Whether the backward passes share a graph is not known: not one model is called before them."
        )
    return [_finding(found, share, step_ns, on_gpu=trains_on_gpu(evidence, trainer))]


def _finding(found: RepeatedBackward, share: float, step_ns: float, on_gpu: bool) -> Finding:
    """Return the finding about a loop's passes."""
    best, worst = saving(step_ns, LEAST_GONE * found.vain_ns, found.vain_ns)
    where = found.lines[0]
    many = units.number(found.passes)
    own = (pl.col("operation") == "backward") & (pl.col("part") == "backward")
    return Finding(
        title=f"{SHARE} of the training loop goes into backward passes at {place(where, 'one line')} through a graph "
        "that another pass goes through, too.",
        share=share,
        saving=(best, 1.0 if on_gpu else worst),
        evidence=(
            f"{many} backward passes follow on each other in a step, with retain_graph=True: together "
            f"{units.duration(found.ns_per_step)}, of which {units.duration(found.vain_ns)} beyond the longest.",
        ),
        advice=f"Add the losses up and call backward() once at {place(where, 'that line')}: the gradients are the same "
        "sums, and what the losses share is gone through once. Not where something reads the gradients in between.",
        verdict="compute-bound",
        location=locate(where),
        confidence="inferred",
        claims=own
        & pl.any_horizontal(
            (pl.col("file") == line.file) & (pl.col("line") == line.line) for line in found.lines
        ),
    )
