"""What the processes of a run were: who trained, and who only helped."""

from __future__ import annotations

from collections.abc import Set

import polars as pl

from perfwrap.timeline.coverage import RECORDER
from perfwrap.timeline.model import Timeline

COMPILER = "compile_worker"
"""Stands in the command line of the processes in which Inductor compiles."""
OTHER = "other Python"
NAMES = {"agent": "launcher", "worker": "DataLoader worker", "helper": "helper"}
"""What the recorder's roles are called here; what trains has a name of its own."""
TRAINER, COMPILES = "trainer", "compile worker"


def process_roles(timeline: Timeline, training: Set[int]) -> dict[str, int]:
    """Return how many recorded processes were of each kind, those that train first; what was no Python is not here.

    ``training`` are the tracks of the processes that trained.
    """
    found = {TRAINER: len(training)}
    recorded = timeline.coverage.filter(pl.col("what") == RECORDER)["track"].unique()
    compiling = set(
        timeline.facts.filter(pl.col("key") == "argv", pl.col("value").str.contains(COMPILER))[
            "track"
        ].to_list()
    )
    rows = timeline.tracks.filter(pl.col("kind") == "process", pl.col("id").is_in(recorded.implode()))
    for process, role in rows.select("id", "role").iter_rows():
        if process in training or role == "monitor":
            continue
        name = COMPILES if process in compiling else NAMES.get(role or "", OTHER)
        found[name] = found.get(name, 0) + 1
    return {name: count for name, count in found.items() if count}
