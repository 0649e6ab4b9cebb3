"""Which kernels took longest in an earlier run, for a tool that is to measure some of them."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from perfwrap import run_folder
from perfwrap.commands import runs
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import demand_plain
from perfwrap.run_folder import RunFolder
from perfwrap.sources import journal

MOST = 5
"""Kernels; each of them costs a replay of some launches."""
TRIED_RUNS = 5


def top_kernels(earlier: Path | None) -> tuple[str, ...]:
    """Return the functions whose kernels took longest, the longest first.

    They are those of ``earlier`` or, without it, of the latest run here that has kernels; PerfwrapError where none
    does.
    """
    for run in [runs.find(str(earlier))] if earlier is not None else _latest():
        demand_plain(run)
        spans = journal.read(RunFolder(run)).spans.filter(pl.col("operation") == "kernel")
        longest = spans.group_by("name").agg(pl.col("duration").sum()).sort("duration", descending=True)
        found = dict.fromkeys(filter(None, map(function, longest["name"].to_list())))
        if found:
            return tuple(found)[:MOST]
    where = f"{earlier} has" if earlier is not None else f"None of the latest runs in {run_folder.RUNS} has"
    raise PerfwrapError(
        f"{where} no kernels, and ncu is to measure those that took longest.",
        "Record them first with `perfwrap run --nsys -- …`, or name them: --ncu='--kernel-name=regex:gemm'.",
    )


def function(kernel: str) -> str:
    """Return the function's name as ncu has it: without type, namespaces, template arguments and arguments."""
    bare = _without_brackets(kernel).strip()
    words = re.split(r"\s+", bare)
    return words[-1].rpartition("::")[2] if words else ""


def _without_brackets(text: str) -> str:
    """Return a name up to its arguments, without what stands in angle brackets; lambdas have no name."""
    depth, kept = 0, []
    for place, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">" and text[place - 1 : place] != "-":
            depth -= 1
        elif letter == "(" and depth == 0 and not text.startswith("(anonymous namespace)", place):
            break
        elif depth == 0:
            kept.append(letter)
    return "".join(kept).replace("(anonymous namespace)", "")


def _latest() -> list[Path]:
    """Return the latest runs of the usual folder, the newest first."""
    return runs.here()[: -TRIED_RUNS - 1 : -1]
