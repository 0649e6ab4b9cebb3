"""Runs by name: a folder, or what is enough of one's name to tell it from the others below perfwrap-runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import demand_plain, leads_somewhere, read_plain
from perfwrap.run_folder import RunFolder
from perfwrap.shapes import amount, fields, listed, named, number, positive, text

LATEST = "latest"
"""What stands for the run that was started last."""

STRETCHES = fields(needed=True, steps=positive, mean_ns=listed(positive))
MACHINE = named(lambda value: value is None or amount(value))
DIAGNOSIS = fields(
    needed=True,
    verdict=fields(needed=True, id=text),
    steps=lambda value: (
        fields(needed=True, steady=number, anchor=text, stretches=STRETCHES)(value)
        and fields(median_ns=amount, p99_ns=amount, samples_per_s=amount)(value)
    ),
    conditions=named(text),
    findings=listed(fields(needed=True, rule=text, share=amount)),
    outcomes=named(fields(state=text)),
    account=named(amount),
    run=fields(needed=True, command=listed(text)),
)
"""What two runs are compared by, in a diagnosis.json; docs/diagnosis.schema.json has the rest."""
MOST_BYTES = 256 << 20
"""Of a diagnosis.json."""
TRIAL_RUN, PRINTED = "run", "stdout.txt"
"""The folder in which each run of a trial was recorded, and what stands beside it."""
OF_VARIANT = (TRIAL_RUN, PRINTED, "stderr.txt")
"""What stands in the folder of one of a trial's runs."""
TRY = "try.json"
"""What a trial writes at its end."""
MOST_NAMED = 5
"""Of the runs that a name may mean."""


def find(name: str) -> Path:
    """Return the folder of the run that a name means; PerfwrapError when it means none, or several.

    A folder's path; ``latest``; the name that ``--name`` gave; the folder's name or a part of it. Of several runs with
    one ``--name`` the last one counts. PerfwrapError, too, for a folder with pipes or devices in it.
    """
    path = _named(name)
    demand_plain(path)
    return path


def _named(name: str) -> Path:
    """Return the folder that a name means; PerfwrapError when it means none, or several."""
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
        shown = ", ".join(path.name for path in alike[-MOST_NAMED:])
        raise PerfwrapError(
            f"{name!r} may mean {len(alike)} runs: {shown}{' and more' if len(alike) > MOST_NAMED else ''}.",
            "Give more of the name; `perfwrap list` shows all runs.",
        )
    missing = (
        f"There is no folder {name}." if "/" in name else f"There is no run {name!r} below {run_folder.RUNS}."
    )
    raise PerfwrapError(
        missing, "Give the folder that `perfwrap run` named at its end, or a name that `perfwrap list` shows."
    )


def here() -> list[Path]:
    """Return the run folders of the current directory, by when they were started; those of an older perfwrap, too.

    PerfwrapError where that directory has been deleted.
    """
    run_folder.here(Path())
    found = [path for name in (run_folder.OLD_RUNS, run_folder.RUNS) for path in folders(Path(name))]
    return sorted(found, key=lambda path: (_started(path), path.name))


def folders(parent: Path) -> Iterator[Path]:
    """Yield the run folders below a folder, also those among several of a demo, by when they were started."""
    manifests = [*parent.glob(f"*/{run_folder.MANIFEST}"), *parent.glob(f"*/*/{run_folder.MANIFEST}")]
    yield from sorted((path.parent for path in manifests), key=lambda path: (_started(path), path.name))


def trials(parent: Path) -> Iterator[Path]:
    """Yield the folders of trials (`perfwrap try`) below a folder: each holds the runs of its variants, two deep."""
    below = parent.glob(f"*/*/{TRIAL_RUN}/{run_folder.MANIFEST}")
    yield from sorted(path for path in {path.parents[2] for path in below} if is_trial(path))


def is_trial(path: Path) -> bool:
    """Say whether a folder is that of a trial, and no link to one: nothing else holds runs beside what they printed."""
    found = runs_of(path)
    return not path.is_symlink() and bool(found) and all((run.parent / PRINTED).is_file() for run in found)


def why_no_trial(path: Path) -> str:
    """Return why a folder is not that of a trial with nothing else in it, in the words behind its path."""
    variants = {run.parent.name for run in runs_of(path)}
    strange = {one.name for one in path.iterdir()} - variants - {TRY, run_folder.REPORT}
    for variant in sorted(variants):
        strange |= {
            f"{variant}/{one.name}" for one in (path / variant).iterdir() if one.name not in OF_VARIANT
        }
        why = RunFolder(path / variant / TRIAL_RUN).why_not_ours()
        if why:
            return f"is no trial: its {variant}/{TRIAL_RUN} {why}"
    return f"holds {min(strange)}, which perfwrap did not put there" if strange else ""


def runs_of(trial: Path) -> list[Path]:
    """Return the folders of a trial's runs, in their order."""
    return sorted(path.parent for path in trial.glob(f"*/{TRIAL_RUN}/{run_folder.MANIFEST}"))


def manifest(path: Path) -> dict[str, Any]:
    """Return a run's manifest; an empty one where it cannot be read."""
    try:
        return RunFolder(path).read_manifest()
    except PerfwrapError:
        return {}


def called(path: Path) -> str:
    """Return what a run is called: by the user, or else as its folder is."""
    return _given_name(path) or path.absolute().name


def complete(incomplete: str) -> list[str]:
    """Return the names of runs that begin so, for the shell; of several with commas between them the last one."""
    before, comma, begun = incomplete.rpartition(",")
    try:
        known = here()
    except PerfwrapError:
        return []
    names = dict.fromkeys([LATEST, *(_given_name(path) for path in known), *(path.name for path in known)])
    return [before + comma + name for name in names if name and name.startswith(begun)]


def document(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the diagnosis of a run, worked out anew, or of a diagnosis.json as it stands."""
    path = Path(name)
    if leads_somewhere(name) and path.is_file():
        return path.stem if path.stem != "diagnosis" else path.absolute().parent.name, _read(path)
    folder = find(name)
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.commands.report import diagnosed
    from perfwrap.reports import json as json_report

    return called(folder), json_report.document(diagnosed(folder))


def side(names: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the diagnosis of each run that is named, several with commas between them."""
    try:
        return [document(names)]
    except PerfwrapError:
        if "," not in names or leads_somewhere(names):
            raise
    words = [word.strip() for word in names.split(",")]
    if not all(words):
        raise PerfwrapError(
            f"{names!r} names no run between two commas.", "For example: perfwrap compare a1,a2 b1,b2"
        )
    found = [document(word) for word in words]
    # A run that counts twice would make the noise look smaller than it is.
    times = [one["steps"] for _, one in found]
    if len(set(words)) < len(words) or any(times.count(one) > 1 for one in times if one["steady"]):
        raise PerfwrapError(f"{names!r} names the same run twice.", "Name each run once.")
    return found


def _read(path: Path) -> dict[str, Any]:
    """Return the diagnosis that a file holds; PerfwrapError for anything else."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports.json import FORMAT

    mend = "Give a run folder, or the diagnosis.json of one."
    try:
        found = json.loads(read_plain(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise PerfwrapError(f"{path} cannot be read as JSON: {error}", mend) from error
    if not isinstance(found, dict) or not isinstance(found.get("format"), int) or "verdict" not in found:
        raise PerfwrapError(f"{path} is no diagnosis.json.", mend)
    if found["format"] > FORMAT:
        number = found["format"]
        raise PerfwrapError(
            f"{path} was written by a newer perfwrap (format {number}, this one reads {FORMAT}).",
            "Upgrade perfwrap to read it.",
        )
    steps = found.get("steps")
    if isinstance(steps, dict) and ("stretches" not in steps or "conditions" not in found):
        raise PerfwrapError(
            f"{path} was written by an older perfwrap and does not hold the step times.",
            "`perfwrap report RUN` writes it anew from the run folder.",
        )
    if not DIAGNOSIS(found) or not fields(machine=MACHINE)(found):
        raise PerfwrapError(f"{path} is damaged: not all of it is what a diagnosis has there.", mend)
    return found


def _folder(path: Path) -> Path:
    """Return the path of a folder; PerfwrapError for a file."""
    if not path.is_dir():
        raise PerfwrapError(
            f"{path} is not a folder.", "Give the folder that `perfwrap run` named at its end."
        )
    return path


def _given_name(path: Path) -> str:
    """Return the name that the user gave a run; empty without one."""
    return str(manifest(path).get("name") or "")


def _started(path: Path) -> int:
    """Return when a run was started, on the wall clock; 0 where that is not known."""
    start = manifest(path).get("start")
    return int(start["wall_ns"]) if isinstance(start, dict) else 0
