"""Lets several launchers of a job write into one run folder, without waiting for each other.

Each creates its own run folder below ``parts/``; they share only one file, run.json, which the first one creates
atomically. So no launcher affects another, even if it fails.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError
from perfwrap.launch.jobs import Job
from perfwrap.private_files import read_plain
from perfwrap.redaction import masked, masked_words
from perfwrap.run_folder import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    PARTS,
    RUNS,
    RunFolder,
    as_text,
    fill,
    here,
    host_name,
    make_parent,
    safe,
    stem,
)

READING_SECONDS = 2.0
"""How long a run.json may be incomplete on a file system without links."""
NEW_FOLDER = "Choose a new folder with --out, or another --run-id."


def join(out: Path | None, command: list[str], name: str, job: Job) -> tuple[RunFolder, bool]:
    """Create this launcher's own folder in the run of the job, and return whether it leads and prints the report.

    Without ``out`` the run folder is named after the job. If a run of that name already has this rank, an earlier job
    had the same name, and the next number is used: so all ranks of the k-th such job use the k-th folder. Raises
    PerfwrapError if ``out`` contains something else, or a folder cannot be created.
    """
    for place in _places(out, command, name, job):
        try:
            make_parent(place)
            place.mkdir(mode=0o700, exist_ok=True)
            is_first = _put_manifest(place, command, name, job)
            (place / PARTS).mkdir(mode=0o700, exist_ok=True)
            part = None if _other_job(place, job) else _make_part(place / PARTS, job)
        except OSError as error:
            raise PerfwrapError(
                f"Cannot create the run folder {place}: {error.strerror}.", "Choose another with --out DIR."
            ) from error
        if part is not None:
            fill(part)
            return RunFolder(part), is_first if job.rank is None else job.rank == 0
        if out is not None:
            check(out, job)
    raise AssertionError("unreachable: there is always a next number")


def check(out: Path, job: Job) -> None:
    """Raise PerfwrapError if this launcher cannot use the folder that the user gave."""
    if out.exists() and not out.is_dir():
        raise PerfwrapError(f"{out} is a file.", NEW_FOLDER)
    if not out.is_dir():
        return
    if not (out / MANIFEST).exists():
        if any(not entry.name.startswith(".") and entry.name != PARTS for entry in out.iterdir()):
            raise PerfwrapError(f"{out} is not empty.", NEW_FOLDER)
        return
    other = _other_job(out, job)
    if other:
        raise PerfwrapError(f"{out} contains {other}, but this is job {job.id}.", NEW_FOLDER)
    if job.rank is not None and (out / PARTS / _part_name(job)).exists():
        raise PerfwrapError(f"{out} already contains rank {job.rank} of job {job.id}.", NEW_FOLDER)


def _places(out: Path | None, command: list[str], name: str, job: Job) -> Iterator[Path]:
    """Yield where the run may be: the requested folder, or one named after the job, -2, -3 and so on."""
    if out is not None:
        yield here(out)
        return
    first = here(Path(RUNS) / f"{safe(job.id)}-{stem(command, name)}")
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")


def _put_manifest(place: Path, command: list[str], name: str, job: Job) -> bool:
    """Write the job of the run into run.json, unless it exists; return whether this launcher wrote it."""
    manifest = place / MANIFEST
    if manifest.exists():
        return False
    content = as_text(
        {
            "job": {"id": job.id, "started_by": job.started_by, "size": job.size},
            "command": masked_words(command),
            **({"name": masked(name)} if name else {}),
            "start": {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()},
        }
    )
    temporary = place / f".{MANIFEST}.{host_name()}.{os.getpid()}"
    temporary.write_text(content, encoding="utf-8")
    try:
        os.link(temporary, manifest)
    except FileExistsError:
        return False
    except OSError:
        return _put_without_link(manifest, content)
    finally:
        temporary.unlink()
    return True


def _put_without_link(manifest: Path, content: str) -> bool:
    """Create the file on a file system without links; others may see it incomplete for a moment."""
    try:
        with manifest.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def _other_job(place: Path, job: Job) -> str:
    """Return which other run the folder belongs to, empty if it is this job's."""
    deadline = time.monotonic() + READING_SECONDS
    while True:
        try:
            found: Any = json.loads(read_plain(place / MANIFEST, MAX_MANIFEST_BYTES).decode("utf-8"))
            break
        except ValueError:
            if time.monotonic() > deadline:
                return "a run.json that cannot be read"
            time.sleep(0.01)
    known = found.get("job") if isinstance(found, dict) else None
    if not isinstance(known, dict):
        return "a run of one launcher"
    return "" if known.get("id") == job.id else f"the run of job {known.get('id')}"


def _make_part(parts: Path, job: Job) -> Path | None:
    """Create this launcher's folder; None if that rank has one. Without ranks a host may have several."""
    name = _part_name(job)
    for number in count(1):
        part = parts / (name if number == 1 else f"{name}-{number}")
        try:
            part.mkdir(mode=0o700)
        except FileExistsError:
            if job.rank is not None:
                return None
        else:
            return part
    return None


def _part_name(job: Job) -> str:
    """Return the name of this launcher's folder."""
    if job.rank is None:
        return host_name()
    return f"{host_name()}.rank{job.rank}" + (f".start{job.restart + 1}" if job.restart else "")
