"""How the time of a whole run divides: before, in and after the training loop."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_concurrent_groups
from perfwrap.measures.ranks.restarts import find_restarts
from perfwrap.measures.steps.steps import find_steps


@dataclass(frozen=True)
class WholeRun:
    """The parts of a run, from the start of its command to its end, in nanoseconds."""

    start_ns: int
    """Until the first step of any training thread starts."""
    loop_ns: int
    end_ns: int
    """From the end of the last training loop."""


def find_whole_run(evidence: Evidence) -> WholeRun | None:
    """Return the parts of a run that has one training loop; the loops of ranks at the same time count as one.

    None if the start, the end or the steps of the command were not recorded, and if the training started more than
    once: the time between two loops is none of the three parts.
    """
    run, groups = evidence.timeline.run, evidence.get(find_concurrent_groups)
    begin, end = run.get("start"), run.get("end")
    if not isinstance(begin, dict) or not isinstance(end, dict) or run.get("attached") or "imported" in run:
        return None
    if len(groups) != 1 or evidence.get(find_restarts):
        return None
    loops = [steps for trainer in groups[0] if (steps := evidence.get(find_steps, trainer)).count]
    if not loops:
        return None
    first = min(int(steps.table["start"][0]) for steps in loops)
    last = max(steps.loop_end for steps in loops)
    parts = (first - begin["monotonic_ns"], last - first, end["monotonic_ns"] - last)
    return WholeRun(*parts) if min(parts) >= 0 else None
