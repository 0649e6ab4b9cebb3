"""Finds runs by name: a folder, or a unique part of the name of a run below perfwrap-runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import demand_plain, leads_somewhere
from perfwrap.run_folder import RunFolder

LATEST = "latest"
"""The name for the run that was started last."""

TRIAL_RUN, PRINTED = "run", "stdout.txt"
"""The run folder of each run of a trial, and the file with its output beside it."""
OF_VARIANT = (TRIAL_RUN, PRINTED, "stderr.txt")
"""All that is in the folder of one run of a trial."""
TRY = "try.json"
"""The file that a trial writes at its end."""
FIX, PATCH, PULL_REQUEST, FIX_PAGE = "fix.json", "perfwrap.patch", "pull-request.md", "fix.html"
"""The files that `perfwrap fix` writes at its end; its runs are those of a trial."""
OVERLAY, NOTEBOOK = ".overlay", ".ipynb"
"""The suffixes of the files with edited source, one for each edit that `perfwrap fix` tries, and of its notebooks."""
MAX_NAMED = 5
"""Maximum number of matching runs in an error message."""


def find(name: str) -> Path:
    """Return the folder of the run with that name; PerfwrapError if no run or several runs match.

    A name is a folder's path, ``latest``, the name given by ``--name``, or the folder's name or a part of it. If
    several runs have the same ``--name``, the last one is used. PerfwrapError also for a folder that contains pipes
    or devices.
    """
    path = _named(name)
    demand_plain(path)
    return path


def _named(name: str) -> Path:
    """Return the folder of the run with that name; PerfwrapError if no run or several runs match."""
    if leads_somewhere(name):
        return _folder(Path(name))
    known = here()
    if name == LATEST and known:
        return known[-1]
    same = [path for path in known if path.name == name or _given_name(path) == name]
    alike = same[-1:] or [path for path in known if name in "/".join(path.parts[1:])]
    if len(alike) == 1:
        return alike[0]
    if alike:
        shown = ", ".join(path.name for path in alike[-MAX_NAMED:])
        raise PerfwrapError(
            f"{name!r} matches {len(alike)} runs: {shown}{' and more' if len(alike) > MAX_NAMED else ''}.",
            "Give a longer part of the name. To list all runs: perfwrap list",
        )
    missing = (
        f"There is no folder {name}." if "/" in name else f"There is no run {name!r} below {run_folder.RUNS}."
    )
    raise PerfwrapError(missing, "Give a run folder or the name of a run. To list all runs: perfwrap list")


def here() -> list[Path]:
    """Return the run folders of the current directory in order of start, including those of an older perfwrap.

    PerfwrapError if that directory has been deleted.
    """
    run_folder.here(Path())
    found = [path for name in (run_folder.OLD_RUNS, run_folder.RUNS) for path in folders(Path(name))]
    return sorted(found, key=lambda path: (_started(path), path.name))


def folders(parent: Path) -> Iterator[Path]:
    """Yield the run folders below a folder, including the runs of a demo, in order of start."""
    manifests = [*parent.glob(f"*/{run_folder.MANIFEST}"), *parent.glob(f"*/*/{run_folder.MANIFEST}")]
    yield from sorted((path.parent for path in manifests), key=lambda path: (_started(path), path.name))


def trials(parent: Path) -> Iterator[Path]:
    """Yield the folders of trials (`perfwrap try` and `fix`) below a folder: each contains its runs, two deep."""
    below = parent.glob(f"*/*/{TRIAL_RUN}/{run_folder.MANIFEST}")
    yield from sorted(path for path in {path.parents[2] for path in below} if is_trial(path))


def is_trial(path: Path) -> bool:
    """Return whether a folder is a trial's, and not a link to one: only trials have runs beside their output."""
    found = runs_of(path)
    return not path.is_symlink() and bool(found) and all((run.parent / PRINTED).is_file() for run in found)


def why_no_trial(path: Path) -> str:
    """Return why a folder is not a trial without other files, as the rest of a sentence that begins with its path."""
    variants = {run.parent.name for run in runs_of(path)}
    strange = {one.name for one in path.iterdir() if one.suffix != OVERLAY or not one.is_file()}
    strange -= variants | {TRY, run_folder.REPORT, FIX, PATCH, PULL_REQUEST, FIX_PAGE}
    for variant in sorted(variants):
        strange |= {
            f"{variant}/{one.name}"
            for one in (path / variant).iterdir()
            if one.name not in OF_VARIANT and one.suffix != NOTEBOOK
        }
        why = RunFolder(path / variant / TRIAL_RUN).why_not_ours()
        if why:
            return f"is not a trial: its {variant}/{TRIAL_RUN} {why}"
    return f"holds {min(strange)}, which perfwrap did not put there" if strange else ""


def runs_of(trial: Path) -> list[Path]:
    """Return the folders of a trial's runs, in order."""
    return sorted(path.parent for path in trial.glob(f"*/{TRIAL_RUN}/{run_folder.MANIFEST}"))


def manifest(path: Path) -> dict[str, Any]:
    """Return a run's manifest; empty if it cannot be read."""
    try:
        return RunFolder(path).read_manifest()
    except PerfwrapError:
        return {}


def called(path: Path) -> str:
    """Return the name that the user gave a run, or else the name of its folder."""
    return _given_name(path) or path.absolute().name


def complete(incomplete: str) -> list[str]:
    """Return the names of runs with that beginning, for shell completion; in a comma-separated list, of the last."""
    before, comma, begun = incomplete.rpartition(",")
    try:
        known = here()
    except PerfwrapError:
        return []
    names = dict.fromkeys([LATEST, *(_given_name(path) for path in known), *(path.name for path in known)])
    return [before + comma + name for name in names if name and name.startswith(begun)]


def _folder(path: Path) -> Path:
    """Return the path of a folder; PerfwrapError for a file."""
    if not path.is_dir():
        raise PerfwrapError(f"{path} is not a folder.", "Give a run folder. To list all runs: perfwrap list")
    return path


def _given_name(path: Path) -> str:
    """Return the name that the user gave a run; empty if there is none."""
    return str(manifest(path).get("name") or "")


def _started(path: Path) -> int:
    """Return when a run was started, on the wall clock; 0 if unknown."""
    start = manifest(path).get("start")
    return int(start["wall_ns"]) if isinstance(start, dict) else 0
