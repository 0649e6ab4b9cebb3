"""Delete old runs and trials."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from perfwrap import run_folder, units
from perfwrap.analysis import run_names
from perfwrap.commands import abandoned
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.waiting import Waiting
from perfwrap.run_folder import RunFolder

AGES = {"h": 3600, "d": 86400, "w": 604800}
"""Seconds in each unit of --older-than."""
EMPTY_NS = 3_600_000_000_000
"""A younger empty folder may belong to a run that is just starting."""


def clean(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN...]", help="Runs to delete.", autocompletion=run_names.complete),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Delete all but the N newest.", show_default=False),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="Delete runs older than this, e.g. 12h, 30d or 4w.", show_default=False
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, the runs are only listed.")] = False,
) -> None:
    """Delete old runs and trials.

    Deletes the named runs, or runs in perfwrap-runs by number and age. Without --yes, the runs are only listed with
    their sizes. A run that has not ended is kept, unless it is named, or was killed on this machine. --keep and
    --older-than also delete empty folders that earlier runs left.
    """
    if not names and keep is None and not older_than:
        raise PerfwrapError("No runs were chosen.", "Name runs, or use --keep 10 or --older-than 30d.")
    if names and (keep is not None or older_than):
        raise PerfwrapError(
            "Names of runs exclude --keep and --older-than.", "Give names, or one of these options."
        )
    chosen = (
        list(dict.fromkeys(map(_run, names))) if names else [*_chosen(keep, older_than), *_empty(older_than)]
    )
    page = Page(sys.stdout)
    with Waiting("Deleting runs" if yes else "Reading runs", len(chosen)) as waiting:
        for path in chosen:
            why = "" if names else _why_left(path)
            if why:
                page.line((f"kept: {path} {why}", ""))
                continue
            size = units.size(sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir()))
            if yes:
                _remove(path)
            page.line((f"{'deleted' if yes else 'would delete'} {path} ({size})", ""))
            waiting.advance()
    if not chosen:
        page.line(("There is nothing to delete.", ""))
    elif not yes:
        page.line(("Nothing was deleted. To delete these runs, add --yes.", "bold"))
    page.show()


def _run(name: str) -> Path:
    """Return the folder of a run; PerfwrapError for any other folder, so that nothing else is ever deleted."""
    if not name:
        raise PerfwrapError("The name of a run is empty.", "Give its name; to list all runs: perfwrap list")
    for trial in (Path(name), Path(run_folder.RUNS, name)):
        if leads_somewhere(str(trial)) and trial.is_dir() and run_names.is_trial(trial):
            _demand_ours(trial, run_names.why_no_trial(trial))
            return trial
    path = run_names.find(name)
    if path.is_symlink():
        raise PerfwrapError(
            f"{path} is a link to a run elsewhere.", "Name the folder itself, or delete the link."
        )
    _demand_ours(path, RunFolder(path).why_not_ours())
    return path


def _demand_ours(path: Path, why: str) -> None:
    """Raise PerfwrapError if a folder contains other files, which would be lost."""
    if why:
        raise PerfwrapError(f"{path} {why}.", "If you need nothing in it, delete it yourself.")


def _why_left(path: Path) -> str:
    """Return why a folder that was chosen by number or age is kept, as words after its path; empty to delete it."""
    if _is_empty(path):
        return ""
    try:
        return run_names.why_no_trial(path) if run_names.is_trial(path) else RunFolder(path).why_not_ours()
    except (PerfwrapError, OSError) as error:
        return f"cannot be read ({error})"


def _chosen(keep: int | None, older_than: str) -> list[Path]:
    """Return the runs in perfwrap-runs that have ended, without the newest ones and the younger ones."""
    run_folder.here(Path())
    age, now = _age(older_than), time.time_ns()
    below = Path(run_folder.RUNS)
    ended = {path: _over_since(path) for path in run_names.folders(below)}
    ended |= {path: _trial_over_since(path) for path in run_names.trials(below)}
    since = {path: moment for path, moment in ended.items() if moment}
    over = dict(sorted(since.items(), key=lambda item: item[1]))
    known = list(over)[: max(0, len(over) - keep)] if keep is not None else list(over)
    return [path for path in known if now - over[path] >= age]


def _over_since(path: Path) -> int | None:
    """Return when a run ended, on the wall clock; None for a run that may still go on, and for links."""
    if path.is_symlink() or not path.resolve().is_relative_to(Path(run_folder.RUNS).resolve()):
        return None
    manifest, folder = run_names.manifest(path), RunFolder(path)
    if manifest.get("end"):
        return int(manifest["end"]["wall_ns"])
    if "imported" in manifest:
        return abandoned.imported_ns(folder)
    return abandoned.last_sign_ns(folder) if abandoned.is_abandoned(folder, manifest) else None


def _trial_over_since(path: Path) -> int | None:
    """Return when a trial ended; None for a trial that may still go on."""
    moments = [_over_since(run) for run in run_names.runs_of(path)]
    known = [moment for moment in moments if moment]
    if len(known) < len(moments):
        return None
    is_over = (path / run_names.TRY).is_file() or time.time_ns() - max(known) >= EMPTY_NS
    return max(known) if is_over else None


def _empty(older_than: str) -> list[Path]:
    """Return the empty folders in perfwrap-runs, such as that of a trial that was interrupted at once."""
    minimum, now = max(_age(older_than), EMPTY_NS), time.time_ns()
    found = [path for path in Path(run_folder.RUNS).glob("*") if path.is_dir() and not path.is_symlink()]
    return sorted(path for path in found if _is_empty(path) and now - path.lstat().st_mtime_ns >= minimum)


def _is_empty(path: Path) -> bool:
    """Return whether a folder is empty; False for a folder that cannot be read."""
    try:
        return not any(path.iterdir())
    except OSError:
        return False


def _age(text: str) -> int:
    """Return an age in nanoseconds; PerfwrapError for any other text."""
    if not text:
        return 0
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found is None:
        raise PerfwrapError(f"--older-than does not take {text!r}.", "For example: --older-than 30d")
    return int(found[1]) * AGES[found[2]] * 10**9


def _remove(path: Path) -> None:
    """Delete a folder, and its demo or trial folder if that is empty then; PerfwrapError if this fails."""
    parent = path.parent
    try:
        shutil.rmtree(path)
        if parent.resolve().parent == Path(run_folder.RUNS).resolve() and _is_empty(parent):
            parent.rmdir()
    except OSError as error:
        raise PerfwrapError(
            f"Cannot delete {path}: {error.strerror or error}.", "Check who owns the folder."
        ) from error
