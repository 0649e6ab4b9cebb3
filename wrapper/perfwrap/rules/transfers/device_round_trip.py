"""Data is copied from the GPU to the host and back within a step.

What it finds
    A line that copies from the GPU and one that copies the same number of bytes back before the step ends, in at least
    half of the steps, that together take at least 2 % of the training loop on the host.

Why it costs
    The copy from the GPU makes the host wait until all earlier work is done; then the slower processor computes while
    the GPU is idle.

How the gain is estimated
    The host's time in both copies is measured. The gain is estimated: from zero, if the GPU is busy meanwhile, to all
    of it.

How to fix
    Keep the tensor on the GPU: use torch operations instead of numpy between the two lines.

When it is wrong
    The rule assumes that it is the same data because the number of bytes is equal, in the same step and without a batch
    of a DataLoader in between. A program that slices its batches by hand may copy a batch of exactly that size.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.round_trips import RoundTrip, find_round_trips
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place
from perfwrap.rules.on_gpu import ON_CPU, stayed_on_cpu
from perfwrap.rules.transfers._copies import on_lines

NEEDS = ("transfers", "steady_steps", "copies")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_steps_share: float = 0.5
    """Share of the steps from which the round trip is a pattern of the loop."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for copies to the host and back."""
    if stayed_on_cpu(evidence, trainer):
        return ON_CPU
    trips = [
        trip for trip in evidence.get(find_round_trips, trainer) if trip.steps_share >= limits.min_steps_share
    ]
    slow = [trip for trip in trips if trip.share >= limits.min_reported_share]
    if not slow:
        return Clear(
            f"Copies to the host and back take {units.share(sum(trip.share for trip in trips))} of the loop."
        )
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(trip, step_ns) for trip in slow]


def _finding(trip: RoundTrip, step_ns: float) -> Finding:
    """Return the finding about one pair of lines."""
    away, back = place(trip.away, ""), place(trip.back, "")
    return Finding(
        title=f"{units.size(trip.bytes)} leave the GPU at {away} and return at {back} in the same step, which costs "
        f"up to {SHARE} of the training loop.",
        share=trip.share,
        evidence=(
            f"Found in {units.share(trip.steps_share)} of the steps. The equal size suggests that it is the same "
            "data.",
        ),
        options=(
            Option(
                f"Keep the tensor on the GPU between {away} and {back}.",
                saving(step_ns, 0.0, trip.share * step_ns),
            ),
        ),
        verdict="transfer-bound",
        location=locate(trip.away),
        confidence="inferred",
        claims=on_lines(trip.away, trip.back),
    )
