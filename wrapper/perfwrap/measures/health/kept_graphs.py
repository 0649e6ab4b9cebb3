"""The lines whose autograd graphs were kept alive, as far as recorded."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line, parse_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

MIN_NOTED = 5
MIN_KEPT_SHARE = 0.9
"""Share of old graphs that are still alive from which a line's graphs count as kept."""
KINDS = ("backward", "forward", "inside")
"""Most reliable first."""


class KeptGraphs(Struct, frozen=True):
    """One line: ``alive`` of ``noted`` graphs that are some steps old are still alive."""

    where: Line | None
    kind: str
    """``backward``: tensors on which backward() was called; ``forward``: the output of a module; ``inside``: tensors
    created inside a module's call that are not its output."""
    noted: int
    alive: int


def find_kept_graphs(evidence: Evidence, trainer: Trainer) -> tuple[KeptGraphs, ...]:
    """Return the lines whose graphs are kept, most graphs first: losses before the outputs that they contain."""
    timeline = evidence.timeline
    facts = facts_of(timeline, trainer.process)
    numbers = [key.split("/")[1] for key in facts if key.startswith("live_graph/") and key.endswith("/line")]
    found = [
        KeptGraphs(
            parse_line(facts[f"live_graph/{number}/line"]),
            facts.get(f"live_graph/{number}/kind", ""),
            _maximum(timeline, trainer, f"live_graph/{number}/old"),
            _maximum(timeline, trainer, f"live_graph/{number}/alive"),
        )
        for number in numbers
    ]
    known = [one for one in found if one.kind in KINDS and one.noted >= MIN_NOTED]
    kept = [one for one in known if one.alive >= MIN_KEPT_SHARE * one.noted]
    results = {one.where for one in kept if one.kind == "forward"}
    kept = [one for one in kept if one.kind != "inside" or one.where not in results]
    return tuple(sorted(kept, key=lambda one: (KINDS.index(one.kind), -one.alive)))


def _maximum(timeline: Timeline, trainer: Trainer, key: str) -> int:
    """Return the largest recorded number: at the end of a program its objects may be gone."""
    recorded = timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key") == key)["value"]
    return max((int(value) for value in recorded if value.isdecimal()), default=0)
