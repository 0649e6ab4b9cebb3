"""List the runs that are kept."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import run_folder
from perfwrap.commands import abandoned, runs
from perfwrap.commands.output_options import chosen, put
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere, read_plain
from perfwrap.run_folder import RunFolder

FORMATS = ("terminal", "json")


def list_(
    below: Annotated[
        Path, typer.Argument(help="The folder in which the runs are.", show_default=run_folder.RUNS)
    ] = Path(run_folder.RUNS),
    tag: Annotated[
        str, typer.Option(metavar="TAG", help="Only runs with this tag.", show_default="all")
    ] = "",
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="How to write it: terminal or json.")
    ] = "terminal",
) -> None:
    """List the runs and trials that are kept, the newest last: name, when, how long, verdict, step time, command.

    What the verdict was is read from each diagnosis.json, as `perfwrap run` or `perfwrap report` left it, and from the
    try.json of a trial.
    """
    form = chosen(format, FORMATS)
    run_folder.here(below)
    if not leads_somewhere(str(below)) or not below.is_dir():
        raise PerfwrapError(
            f"There is no folder {below}.",
            "Start a run: perfwrap run -- python train.py; or name the folder.",
        )
    rows = [_row(path, below) for path in runs.folders(below)]
    rows += [_trial_row(path, below) for path in runs.trials(below)]
    rows.sort(key=lambda row: (row["start_wall_ns"] or 0, row["folder"]))
    told = [row for row in rows if not tag or tag in row["tags"]]
    if form == "json":
        put(json.dumps({"format": 1, "runs": told}, indent=1) + "\n")
        return
    _draw(told, below)


def _row(path: Path, below: Path) -> dict[str, Any]:
    """Return what is known of a run without reading what was recorded."""
    manifest, diagnosis = runs.manifest(path), _diagnosis(path)
    start, end = manifest.get("start") or {}, manifest.get("end") or {}
    took = end["monotonic_ns"] - start["monotonic_ns"] if start and end else None
    return {
        "folder": str(path.relative_to(below)),
        "name": manifest.get("name"),
        "tags": list(manifest.get("tags") or ()),
        "command": [str(word) for word in manifest.get("command") or ()],
        "imported": "imported" in manifest,
        "start_wall_ns": abandoned.imported_ns(RunFolder(path))
        if "imported" in manifest
        else start.get("wall_ns"),
        "duration_ns": took,
        "exit": manifest.get("exit"),
        "verdict": (diagnosis.get("verdict") or {}).get("id"),
        "median_ns": (diagnosis.get("steps") or {}).get("median_ns"),
        "tried": None,
    }


def _trial_row(path: Path, below: Path) -> dict[str, Any]:
    """Return what is known of a trial: of its first run, and what came of it."""
    rows = [_row(run, below) for run in runs.runs_of(path)]
    ends = [int((runs.manifest(run).get("end") or {}).get("wall_ns", 0)) for run in runs.runs_of(path)]
    start, trial = rows[0]["start_wall_ns"], _document(path / runs.TRY)
    return {
        **rows[0],
        "folder": str(path.relative_to(below)),
        "duration_ns": max(ends) - start if start and all(ends) else None,
        "verdict": _outcome(trial),
        "median_ns": (trial.get("baseline") or {}).get("median_ns"),
        "tried": [str(variant.get("name")) for variant in trial.get("variants") or ()],
    }


def _outcome(trial: dict[str, Any]) -> str | None:
    """Return what came of a trial; None where nothing is known, or sizes of batches were tried."""
    if trial.get("best"):
        return f"best {trial['best']}"
    return "no gain" if trial and not trial.get("batch_size") else None


def _diagnosis(path: Path) -> dict[str, Any]:
    """Return the diagnosis that was written last; an empty one without any that can be read."""
    return _document(RunFolder(path).diagnosis)


def _document(path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; nothing without one that can be read."""
    try:
        found = json.loads(read_plain(path, runs.MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _took(row: dict[str, Any]) -> str:
    """Return how long a run took, or why that is not known."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap import units

    if row["duration_ns"] is None:
        return "imported" if row["imported"] else "not ended"
    return units.duration(row["duration_ns"])


def _draw(rows: list[dict[str, Any]], below: Path) -> None:
    """Draw the runs, two lines each: what stands on the first is short, a command may be long."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap import units
    from perfwrap.reports.page import Page

    page = Page(sys.stdout)
    for row in rows:
        name = row["name"] or row["folder"]
        tags = "".join(f" #{tag}" for tag in row["tags"])
        page.line((page.fitted(name, page.width - len(tags) - 1), "bold"), (tags, "cyan"))
        started = row["start_wall_ns"]
        facts = [
            row["folder"] if row["name"] else "",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(started / 1e9)) if started else "",
            _took(row),
            row["verdict"] or ("trial" if row["tried"] is not None else "not diagnosed"),
            f"{units.duration(row['median_ns'], 3)} a step" if row["median_ns"] else "",
        ]
        page.paragraph(" · ".join(fact for fact in facts if fact), indent=2)
        page.line((page.fitted(" ".join(row["command"]), page.width - 2), "dim"), indent=2)
    if not rows:
        page.line((f"No runs below {below}.", ""))
    page.show()
