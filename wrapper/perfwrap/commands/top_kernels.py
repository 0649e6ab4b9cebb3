"""The slowest kernels of an earlier run, which ncu is to measure."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from perfwrap import run_folder
from perfwrap.analysis import run_names
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import demand_plain
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

MAX_KERNELS = 5
"""Each kernel costs a replay of some launches."""
MAX_RUNS = 5
"""Runs that are searched for kernels, the newest first."""


def top_kernels(earlier: Path | None) -> tuple[str, ...]:
    """Return the functions whose kernels took longest, the longest first.

    They are those of ``earlier`` or, without it, of the latest run with kernels; PerfwrapError if there is none.
    """
    for run in [run_names.find(str(earlier))] if earlier is not None else _latest():
        demand_plain(run)
        spans = run_journals.read(RunFolder(run)).spans.filter(pl.col("operation") == "kernel")
        longest = spans.group_by("name").agg(pl.col("duration").sum()).sort("duration", descending=True)
        found = dict.fromkeys(filter(None, map(function, longest["name"].to_list())))
        if found:
            return tuple(found)[:MAX_KERNELS]
    where = f"{earlier} has" if earlier is not None else f"None of the latest runs in {run_folder.RUNS} has"
    raise PerfwrapError(
        f"{where} no kernels, so perfwrap does not know which kernels ncu should measure.",
        "Record them first (perfwrap run --nsys -- YOUR_COMMAND), or name them: --ncu='--kernel-name=regex:gemm'",
    )


def function(kernel: str) -> str:
    """Return the function name as in ncu: without type, namespaces, template arguments and arguments."""
    bare = _without_brackets(kernel).strip()
    words = re.split(r"\s+", bare)
    return words[-1].rpartition("::")[2] if words else ""


def _without_brackets(text: str) -> str:
    """Return a name up to its arguments, without the text in angle brackets; lambdas have no name."""
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
    """Return the latest runs of the default folder, the newest first."""
    return run_names.here()[: -MAX_RUNS - 1 : -1]
