"""Merge run folders from several machines into one run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import units
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import demand_plain
from perfwrap.reports.waiting import Waiting
from perfwrap.run_folder import MANIFEST, PARTS, RunFolder, as_text, safe
from perfwrap.shown_text import say


def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, in any order.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; must be new or empty.")],
    any_job: Annotated[
        bool, typer.Option("--any-job", help="Also merge runs of different or unknown jobs.")
    ] = False,
) -> None:
    """Merge run folders from several machines into one run.

    For machines without shared storage. The folders are copied and not changed. Their order does not matter, and
    duplicates are ignored. Print the report of the new folder with `perfwrap report`.
    """
    parts = _different([part for path in runs for part in _parts(path)])
    job = _job_of(parts, any_job)
    try:
        _copy(parts, job, out)
    except (OSError, shutil.Error) as error:
        raise PerfwrapError(
            f"Cannot write {out}: {error}.", "Remove it, and choose another place with --out DIR."
        ) from error
    hosts = len({(manifest.get("host") or {}).get("name") for _, manifest in parts})
    what = f"{units.counted(len(parts), 'recording')} of {units.counted(hosts, 'host')}"
    say(f"perfwrap: merged {what} into {out}. To print the report: perfwrap report {out}")


def _parts(path: Path) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """Yield the recordings of a run folder with their manifests; PerfwrapError if it is not a run folder."""
    demand_plain(path)
    folder = RunFolder(path)
    manifest = folder.read_manifest()
    if "imported" in manifest:
        raise PerfwrapError(
            f"{path} was imported from files of other profilers.",
            "Import all files together: perfwrap import FILE... --out DIR",
        )
    if not folder.is_joined:
        yield folder, manifest
        return
    for part in folder.parts():
        yield part, part.read_manifest()


def _different(
    parts: list[tuple[RunFolder, dict[str, Any]]],
) -> list[tuple[RunFolder, dict[str, Any]]]:
    """Return the recordings in a fixed order, without duplicates."""
    known = {_identity(manifest): (part, manifest) for part, manifest in parts}
    return [known[identity] for identity in sorted(known)]


def _identity(manifest: dict[str, Any]) -> tuple[int, str, int, str]:
    """Return what identifies a recording: when and where it began, and what ran."""
    start, part = manifest.get("start") or {}, manifest.get("part") or {}
    host = manifest.get("host") or {}
    return (
        int(start.get("wall_ns", 0)),
        f"{host.get('name')} {host.get('clock')}",
        int(start.get("monotonic_ns", 0)),
        f"{part.get('rank')} {manifest.get('command')}",
    )


def _job_of(parts: list[tuple[RunFolder, dict[str, Any]]], any_job: bool) -> dict[str, Any]:
    """Return the job of all recordings; PerfwrapError if they are of several jobs, or of an unknown one."""
    if not parts:
        raise PerfwrapError(
            "There is nothing to merge: the folders contain no recording.", "Give other folders."
        )
    jobs = {str((manifest.get("part") or {}).get("job") or ""): part.path for part, manifest in parts}
    if len(jobs) > 1 and not any_job:
        found = "; ".join(f"{path.name} is of {name or 'no job'}" for name, path in sorted(jobs.items())[:4])
        raise PerfwrapError(f"The runs are of different jobs: {found}.", "To merge them anyway: --any-job")
    if "" in jobs and len(parts) > 1 and not any_job:
        raise PerfwrapError(
            "The job of these runs is unknown.",
            "To merge them anyway: --any-job. To avoid this, record with `perfwrap run --run-id ID` on each machine.",
        )
    sizes = {(manifest.get("part") or {}).get("size") for _, manifest in parts}
    return {
        "id": sorted(jobs)[0] or "merged",
        "started_by": "merge",
        "size": sizes.pop() if len(sizes) == 1 else None,
    }


def _copy(parts: list[tuple[RunFolder, dict[str, Any]]], job: dict[str, Any], out: Path) -> None:
    """Copy the recordings into a new folder; its run.json comes last, so that an incomplete copy is not a run."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PerfwrapError(
            f"{out} is not empty." if out.is_dir() else f"{out} is a file.", "Choose a new folder with --out."
        )
    (out / PARTS).mkdir(mode=0o700, parents=True)
    out.chmod(0o700)
    names: set[str] = set()
    with Waiting("Copying", len(parts)) as waiting:
        for part, manifest in parts:
            name = _name(part, manifest, names)
            names.add(name)
            shutil.copytree(part.path, out / PARTS / name, symlinks=True, copy_function=_copy_file)
            if "part" not in manifest:
                leads = name == min(names)
                RunFolder(out / PARTS / name).write_manifest(
                    {**manifest, "part": {"job": job["id"], "leads": leads}}
                )
            waiting.advance()
    first = parts[0][1]
    text = as_text({"job": job, "command": first.get("command"), "start": first.get("start")})
    (out / MANIFEST).write_text(text, encoding="utf-8")


def _copy_file(source: str, target: str) -> str:
    """Copy one file with its times; sockets and other special files, which are not recordings, are skipped."""
    return shutil.copy2(source, target) if Path(source).is_file() else target


def _name(part: RunFolder, manifest: dict[str, Any], taken: set[str]) -> str:
    """Return the name of a recording in the merged run: its old name, or that of its host."""
    host = str((manifest.get("host") or {}).get("name") or "host")
    name = part.path.name if "part" in manifest else safe(host)
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
