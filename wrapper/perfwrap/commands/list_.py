"""List recorded runs and trials."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import run_folder, units
from perfwrap.analysis import run_names
from perfwrap.commands import abandoned
from perfwrap.commands.options.option_values import choice
from perfwrap.commands.options.output_options import put
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere, read_plain
from perfwrap.reports import ending_text
from perfwrap.reports.terminal.page import Page
from perfwrap.run_folder import MAX_DOCUMENT_BYTES, RunFolder

FORMATS = ("terminal", "json")


def list_(
    below: Annotated[
        Path, typer.Argument(help="Folder that contains the runs.", show_default=run_folder.RUNS)
    ] = Path(run_folder.RUNS),
    tag: Annotated[
        str, typer.Option(metavar="TAG", help="List only runs with this tag.", show_default=False)
    ] = "",
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Output format: terminal or json.")
    ] = "terminal",
) -> None:
    """List recorded runs and trials.

    Shows name, start, duration, verdict, step time and command, the newest last. The verdict is that of the latest
    `perfwrap run` or `perfwrap report`, from diagnosis.json; for a trial it is that of try.json.
    """
    form = choice("--format", format, FORMATS)
    run_folder.here(below)
    if not leads_somewhere(str(below)) or not below.is_dir():
        raise PerfwrapError(
            f"There is no folder {below}.",
            "Start a run (perfwrap run -- python train.py), or give the folder: perfwrap list DIR",
        )
    rows = [_row(path, below) for path in run_names.folders(below)]
    rows += [_trial_row(path, below) for path in run_names.trials(below)]
    rows.sort(key=lambda row: (row["start_wall_ns"] or 0, row["folder"]))
    listed = [row for row in rows if not tag or tag in row["tags"]]
    if form == "json":
        put(json.dumps({"format": 1, "runs": listed}, indent=1) + "\n")
        return
    _draw(listed, below)


def _row(path: Path, below: Path) -> dict[str, Any]:
    """Return what is known of a run without reading its recording."""
    manifest, diagnosis = run_names.manifest(path), _diagnosis(path)
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
    """Return what is known of a trial: of its first run, and its result."""
    rows = [_row(run, below) for run in run_names.runs_of(path)]
    ends = [
        int((run_names.manifest(run).get("end") or {}).get("wall_ns", 0)) for run in run_names.runs_of(path)
    ]
    start, trial, fix = (
        rows[0]["start_wall_ns"],
        _document(path / run_names.TRY),
        _document(path / run_names.FIX),
    )
    return {
        **rows[0],
        "folder": str(path.relative_to(below)),
        "duration_ns": max(ends) - start if start and all(ends) else None,
        "verdict": _outcome(trial) if trial or not fix else _patched(fix),
        "median_ns": (trial.get("baseline") or {}).get("median_ns"),
        "tried": [str(variant.get("name")) for variant in trial.get("variants") or ()]
        + [str(edit.get("sentence")) for edit in fix.get("edits") or ()],
    }


def _outcome(trial: dict[str, Any]) -> str | None:
    """Return the result of a trial; None if it is unknown, or batch sizes were tried."""
    if trial.get("best"):
        return f"best {trial['best']}"
    return "no gain" if trial and not trial.get("batch_size") else None


def _patched(fix: dict[str, Any]) -> str:
    """Return the result of `perfwrap fix`."""
    ratio = (fix.get("total") or {}).get("ratio")
    return "no patch" if ratio is None else f"patch, step time {units.ratio(ratio)}"


def _diagnosis(path: Path) -> dict[str, Any]:
    """Return the latest diagnosis; an empty one if none can be read."""
    return _document(RunFolder(path).diagnosis)


def _document(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; empty if it cannot be read."""
    try:
        found = json.loads(read_plain(path, MAX_DOCUMENT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _took(row: dict[str, Any]) -> str:
    """Return how long a run took, or why that is not known."""
    if row["duration_ns"] is None:
        return "imported" if row["imported"] else "running or killed"
    return units.duration(row["duration_ns"])


def _failure(row: dict[str, Any]) -> str:
    """Return how a command failed; empty if it did not."""
    how = row["exit"]
    return "" if not isinstance(how, dict) or how.get("code") == 0 else ending_text.sentence({"exit": how})


def _verdict(row: dict[str, Any]) -> str:
    """Return the verdict in words."""
    if row["verdict"] == "unknown":
        return "no verdict"
    return row["verdict"] or ("trial" if row["tried"] is not None else "not diagnosed")


def _draw(rows: list[dict[str, Any]], below: Path) -> None:
    """Draw the runs: name and tags, the facts, and the command, which may be long."""
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
            _failure(row),
            _verdict(row),
            f"{units.duration(row['median_ns'], 3)}/step" if row["median_ns"] else "",
        ]
        page.paragraph(" · ".join(fact for fact in facts if fact), indent=2)
        page.line((page.fitted(" ".join(row["command"]), page.width - 2), "dim"), indent=2)
    if not rows:
        page.line((f"No runs in {below}.", ""))
    page.show()
