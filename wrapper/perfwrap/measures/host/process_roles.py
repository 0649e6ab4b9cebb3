"""The roles of the processes of a run: which trained, and which helped."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import training_processes
from perfwrap.timeline.coverage import RECORDER

COMPILER = "compile_worker"
"""Part of the command line of the processes in which Inductor compiles."""
OTHER = "other Python"
NAMES = {"agent": "launcher", "worker": "DataLoader worker", "helper": "helper"}
"""The names of the recorder's roles; training processes have a name of their own."""
TRAINER, COMPILES = "trainer", "compile worker"


def process_roles(evidence: Evidence) -> dict[str, int]:
    """Return how many recorded processes had each role, training ones first; only Python processes are included."""
    timeline, training = evidence.timeline, evidence.get(training_processes)
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
