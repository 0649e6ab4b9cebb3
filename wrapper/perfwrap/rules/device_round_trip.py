"""Data leaves the GPU and comes back to it within a step.

What it finds
    A line that copies from the GPU and one that copies as many bytes back to it before the step is over, in half of the
    steps or more, that together keep the host for 2 % of the training loop or more.

Why it costs
    The copy from the GPU makes the host wait until all work before it is done; what follows is worked out by the slower
    processor, while the GPU has nothing to do.

How the saving is worked out
    The host's time in both copies is measured. How much of it goes is inferred: from nothing, where the GPU is busy
    meanwhile, to all of it.

How to fix
    Keep the tensor on the GPU: use torch's operations instead of numpy's between the two lines.

When it is wrong
    That it is the same data is inferred from the equal number of bytes, in the same step and with no batch of a loader
    between. A program that cuts its batches by hand may copy a batch of just the size of what it read before.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.round_trips import RoundTrip
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.copies import on_lines
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place
from perfwrap.rules.on_gpu import ON_CPU, stayed_on_cpu

NEEDS = ("transfers", "steady_steps", "copies")

MOST_STEPS = 0.5
"""Share of the steps from which it is a habit of the loop."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for copies there and back."""
    if stayed_on_cpu(evidence, trainer):
        return ON_CPU
    trips = [trip for trip in evidence.round_trips(trainer) if trip.steps_share >= MOST_STEPS]
    slow = [trip for trip in trips if trip.share >= QUIET_SHARE]
    if not slow:
        return Clear(
            f"Copies there and back take {units.share(sum(trip.share for trip in trips))} of the loop."
        )
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(trip, step_ns) for trip in slow]


def _finding(trip: RoundTrip, step_ns: float) -> Finding:
    """Return the finding about one pair of lines."""
    away, back = place(trip.away, ""), place(trip.back, "")
    return Finding(
        title=f"{units.size(trip.bytes)} leave the GPU at {away} and come back at {back} in the same step, which costs "
        f"up to {SHARE} of the training loop.",
        share=trip.share,
        saving=saving(step_ns, 0.0, trip.share * step_ns),
        evidence=(
            f"Seen in {units.share(trip.steps_share)} of the steps; that it is the same data is inferred from "
            "its size.",
        ),
        advice=f"Keep the tensor on the GPU between {away} and {back}.",
        verdict="transfer-bound",
        location=locate(trip.away),
        confidence="inferred",
        claims=on_lines(trip.away, trip.back),
    )
