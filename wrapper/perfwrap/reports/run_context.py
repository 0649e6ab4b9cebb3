"""What a report says about a run as a whole: how its time divides."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import IMPORTS, INSIDE, LOOP, Diagnosis, Place, WholeRun
from perfwrap.timeline.notebook_cells import at_line

PER_CENT = 100

OPTIMIZER_STEP = "optimizer step"
"""How the words for the end of a step begin if it is an optimizer's."""


def run_shares(run: WholeRun) -> dict[str, int]:
    """Return each part's share of the run in per cent, without those below 1 %; they sum to 100 or less."""
    shares = units.apportion({part: float(ns) for part, ns in run.parts.items()}, PER_CENT)
    return {part: share for part, share in shares.items() if share}


def kind_of(part: str) -> str:
    """Return whether a part of the run is ``loop`` (steady steps), otherwise ``inside`` the loop, or ``outside``."""
    return "loop" if part == LOOP else "inside" if part in INSIDE else "outside"


def run_parts(run: WholeRun) -> str:
    """Return e.g. ``imports 25 %, setup 5 %, steady loop 70 %``."""
    return ", ".join(f"{part} {share} %" for part, share in run_shares(run).items())


def step_end(diagnosis: Diagnosis) -> str:
    """Return what ends a step, in words; empty for a recorded run if it is the optimizer's step, as readers expect."""
    anchor = diagnosis.steps.anchor
    return "" if anchor.startswith(OPTIMIZER_STEP) and "imported" not in diagnosis.run else anchor


def run_places(diagnosis: Diagnosis) -> str:
    """Return the costliest places outside the loop in one sentence; empty if unknown."""
    run = diagnosis.whole_run
    if run is None or not run.places:
        return ""
    directory = str(diagnosis.run.get("cwd") or "")
    named = [f"{place_name(place, directory)} {units.duration(place.ns)}" for place in run.places]
    return f"Outside the loop, most time: {', '.join(named)}."


def place_name(place: Place, directory: str) -> str:
    """Return the name of a place outside the loop."""
    if place.part == IMPORTS and place.package:
        return f"importing {place.package}"
    if place.where is None:
        return place.part
    file = place.where.file.removeprefix(f"{directory.rstrip('/')}/")
    return f"{at_line(file, place.where.line)} ({place.part})"
