"""From which lines autograd graphs were kept alive, as far as the recorder noted them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.lines import Line, parse_line
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

LEAST_NOTED = 5
KEPT_SHARE = 0.9
"""From this share on of what was noted long ago a line's graphs count as kept, each of them."""
KINDS = ("backward", "forward", "inside")
"""The surest first."""


@dataclass(frozen=True)
class KeptGraphs:
    """What is known of one line: of ``noted`` graphs some steps old so many were ``alive``."""

    where: Line | None
    kind: str
    """``backward``: what a backward pass began with; ``forward``: the result of a module's call; ``inside``: what was
    made within such a call, and not its result."""
    noted: int
    alive: int


def find_kept_graphs(timeline: Timeline, trainer: Trainer) -> tuple[KeptGraphs, ...]:
    """Return the lines whose graphs are kept, most graphs first: losses before the outputs that they contain."""
    facts = facts_of(timeline, trainer.process)
    numbers = [key.split("/")[1] for key in facts if key.startswith("live_graph/") and key.endswith("/line")]
    found = [
        KeptGraphs(
            parse_line(facts[f"live_graph/{number}/line"]),
            facts.get(f"live_graph/{number}/kind", ""),
            _most(timeline, trainer, f"live_graph/{number}/old"),
            _most(timeline, trainer, f"live_graph/{number}/alive"),
        )
        for number in numbers
    ]
    known = [one for one in found if one.kind in KINDS and one.noted >= LEAST_NOTED]
    kept = [one for one in known if one.alive >= KEPT_SHARE * one.noted]
    results = {one.where for one in kept if one.kind == "forward"}
    kept = [one for one in kept if one.kind != "inside" or one.where not in results]
    return tuple(sorted(kept, key=lambda one: (KINDS.index(one.kind), -one.alive)))


def _most(timeline: Timeline, trainer: Trainer, key: str) -> int:
    """Return the largest number that was told: at the end of a program what it kept may be gone."""
    told = timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key") == key)["value"]
    return max((int(value) for value in told if value.isdigit()), default=0)
