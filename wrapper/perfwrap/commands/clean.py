"""Remove runs that are not needed any more."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from perfwrap import run_folder
from perfwrap.commands import abandoned, runs
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere
from perfwrap.run_folder import RunFolder

AGES = {"h": 3600, "d": 86400, "w": 604800}
"""Seconds in each unit of --older-than."""
EMPTY_NS = 3_600_000_000_000
"""A folder is younger than that when somebody may be about to fill it."""


def clean(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN...]", help="Runs to remove.", autocompletion=runs.complete),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Remove all but the N newest.", show_default=False),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(metavar="AGE", help="Remove those older than 12h, 30d or 4w.", show_default="any"),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Really remove; without it they are only named.")
    ] = False,
) -> None:
    """Remove runs and trials that are not needed any more: those named, or those below perfwrap-runs by number and age.

    Without --yes nothing is removed: the runs are named with their sizes. Runs that have not ended are left alone,
    unless they are named, or killed: their processes were on this machine and are gone. By number and age, folders
    that earlier runs left empty go, too.
    """
    if not names and keep is None and not older_than:
        raise PerfwrapError(
            "Nothing says which runs to remove.", "Name runs, or say --keep 10 or --older-than 30d."
        )
    if names and (keep is not None or older_than):
        raise PerfwrapError("Runs are named and chosen by number or age at once.", "Do the one or the other.")
    doomed = (
        list(dict.fromkeys(map(_run, names))) if names else [*_chosen(keep, older_than), *_empty(older_than)]
    )
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap import units
    from perfwrap.reports.page import Page
    from perfwrap.reports.waiting import Waiting

    page = Page(sys.stdout)
    with Waiting("Removing runs" if yes else "Looking at runs", len(doomed)) as waiting:
        for path in doomed:
            why = "" if names else _why_left(path)
            if why:
                page.line((f"left alone: {path} {why}", ""))
                continue
            size = units.size(sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir()))
            if yes:
                _remove(path)
            page.line((f"{'removed' if yes else 'would remove'} {path} ({size})", ""))
            waiting.advance()
    if not doomed:
        page.line(("There is nothing to remove.", ""))
    elif not yes:
        page.line(("Nothing was removed; --yes does it.", "bold"))
    page.show()


def _run(name: str) -> Path:
    """Return the folder of a run; PerfwrapError for a folder that is none, so that nothing else is ever removed."""
    if not name:
        raise PerfwrapError("The name of a run is empty.", "Name the run; `perfwrap list` shows all.")
    for trial in (Path(name), Path(run_folder.RUNS, name)):
        if leads_somewhere(str(trial)) and trial.is_dir() and runs.is_trial(trial):
            _demand_ours(trial, runs.why_no_trial(trial))
            return trial
    path = runs.find(name)
    if path.is_symlink():
        raise PerfwrapError(
            f"{path} is a link to a run elsewhere.", "Name the folder itself, or remove the link."
        )
    _demand_ours(path, RunFolder(path).why_not_ours())
    return path


def _demand_ours(path: Path, why: str) -> None:
    """Raise PerfwrapError where a folder is not perfwrap's alone: what else is in it would be lost."""
    if why:
        raise PerfwrapError(f"{path} {why}.", "If nothing in it is needed, remove it yourself.")


def _why_left(path: Path) -> str:
    """Return why a folder that was chosen by number or age stays, in the words behind its path; empty where it goes."""
    if _is_empty(path):
        return ""
    try:
        return runs.why_no_trial(path) if runs.is_trial(path) else RunFolder(path).why_not_ours()
    except (PerfwrapError, OSError) as error:
        return f"cannot be looked into ({error})"


def _chosen(keep: int | None, older_than: str) -> list[Path]:
    """Return the runs below perfwrap-runs that are over, and neither among the newest nor young enough."""
    run_folder.here(Path())
    age, now = _age(older_than), time.time_ns()
    below = Path(run_folder.RUNS)
    ended = {path: _over_since(path) for path in runs.folders(below)}
    ended |= {path: _trial_over_since(path) for path in runs.trials(below)}
    since = {path: moment for path, moment in ended.items() if moment}
    over = dict(sorted(since.items(), key=lambda item: item[1]))
    known = list(over)[: max(0, len(over) - keep)] if keep is not None else list(over)
    return [path for path in known if now - over[path] >= age]


def _over_since(path: Path) -> int | None:
    """Return when a run ended, on the wall clock; None for one that may go on, and for what a link leads to."""
    if path.is_symlink() or not path.resolve().is_relative_to(Path(run_folder.RUNS).resolve()):
        return None
    manifest, folder = runs.manifest(path), RunFolder(path)
    if manifest.get("end"):
        return int(manifest["end"]["wall_ns"])
    if "imported" in manifest:
        return abandoned.imported_ns(folder)
    return abandoned.last_sign_ns(folder) if abandoned.is_abandoned(folder, manifest) else None


def _trial_over_since(path: Path) -> int | None:
    """Return when a trial ended; None for one that may go on, as it may between two of its runs."""
    moments = [_over_since(run) for run in runs.runs_of(path)]
    known = [moment for moment in moments if moment]
    if len(known) < len(moments):
        return None
    is_over = (path / runs.TRY).is_file() or time.time_ns() - max(known) >= EMPTY_NS
    return max(known) if is_over else None


def _empty(older_than: str) -> list[Path]:
    """Return the folders below perfwrap-runs with nothing in them, as a trial leaves one that was ended at once."""
    least, now = max(_age(older_than), EMPTY_NS), time.time_ns()
    found = [path for path in Path(run_folder.RUNS).glob("*") if path.is_dir() and not path.is_symlink()]
    return sorted(path for path in found if _is_empty(path) and now - path.lstat().st_mtime_ns >= least)


def _is_empty(path: Path) -> bool:
    """Say whether nothing is in a folder; False for one that may not be looked into."""
    try:
        return not any(path.iterdir())
    except OSError:
        return False


def _age(text: str) -> int:
    """Return an age in nanoseconds; PerfwrapError for what is none."""
    if not text:
        return 0
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found is None:
        raise PerfwrapError(f"--older-than {text!r} is no age.", "For example: --older-than 30d")
    return int(found[1]) * AGES[found[2]] * 10**9


def _remove(path: Path) -> None:
    """Remove a folder, and the one of a demo or trial that it was the last of; PerfwrapError where that fails."""
    parent = path.parent
    try:
        shutil.rmtree(path)
        if parent.resolve().parent == Path(run_folder.RUNS).resolve() and _is_empty(parent):
            parent.rmdir()
    except OSError as error:
        raise PerfwrapError(
            f"{path} cannot be removed: {error.strerror or error}.", "Look at who owns the folder."
        ) from error
