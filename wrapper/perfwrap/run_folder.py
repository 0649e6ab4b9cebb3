"""Names and manifest of a run folder: the contract between recording and reading.

::

    run.json                 manifest, written by the launcher at start and again at the end
    inject/                  what the command's PYTHONPATH points to: shim, recorder source, settings
    starts/<host>.log        one line per Python process that was reached (see START_FIELDS)
    journal/*.pwj            one journal per writer; the format is specified in the recorder's journal.py
    memory/*.pickle          what filled a GPU whose memory had run out; see sources/memory_snapshot.py
    tools/                   files of other tools, kept as they are
    tools/py-spy/            recordings of py-spy's, and <host>.log with when each was made (see PY_SPY_FIELDS)
    tools/window-*.json      what torch's profiler saw of some steps: window-<host>-<pid>.json
    timeline/*.parquet       the saved timeline; may be deleted and rebuilt
    diagnosis.json           the diagnosis; schema in docs/diagnosis-json.md
    trace.json.gz            the timeline for ui.perfetto.dev; described in docs/trace.md
    report.html              the report as one page that works offline
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError

FORMAT = 1
"""Version of the run folder. 1: first."""

RUNS = "perfwrap_runs"
"""Where run folders are made, in the current directory, unless the user names another place."""
MANIFEST = "run.json"
INJECT = "inject"
STARTS = "starts"
JOURNAL = "journal"
MEMORY = "memory"
TOOLS = "tools"
PY_SPY = "py-spy"
TIMELINE = "timeline"
DIAGNOSIS = "diagnosis.json"
TRACE = "trace.json.gz"
REPORT = "report.html"

START_FIELDS = ("event", "pid", "ppid", "start_ticks", "monotonic_ns", "python", "vector", "argv")
"""Tab-separated fields of a line in ``starts/<host>.log``.

``event`` is ``start`` (an interpreter began), ``fork`` (a process with the recorder forked) or ``failed``
(something of perfwrap's raised there: ``argv`` is what); ``start_ticks`` is field 22 of /proc/PID/stat;
``vector`` says which file reached it (sitecustomize, usercustomize, pth), with ``+cwd`` behind it when the
current directory was put back into sys.path; ``argv`` is joined by U+001F with tabs and newlines replaced by
spaces.
"""

PY_SPY_FIELDS = {
    "begin": ("file", "pid", "start_ticks", "rate_hz", "began_ns"),
    "end": ("file", "written_ns", "status", "said"),
}
"""Tab-separated fields of a line in ``tools/py-spy/<host>.log``, by its first field.

``file`` is the recording's name, which may have ``.gz`` behind it; times are CLOCK_MONOTONIC. py-spy was started at
``began_ns`` and wrote the recording at ``written_ns``, 0 when it did not; ``status`` is its wait status and
``said`` what it complained of. A recording without an ``end`` outlived the monitors.
"""


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def manifest(self) -> Path:
        """Where ``run.json`` is."""
        return self.path / MANIFEST

    @property
    def journal(self) -> Path:
        """Where the journals are."""
        return self.path / JOURNAL

    @property
    def starts(self) -> Path:
        """Where the start records are."""
        return self.path / STARTS

    @property
    def inject(self) -> Path:
        """What the command's PYTHONPATH points to."""
        return self.path / INJECT

    @property
    def py_spy(self) -> Path:
        """Where py-spy's recordings are."""
        return self.path / TOOLS / PY_SPY

    @property
    def timeline(self) -> Path:
        """Where the saved timeline is."""
        return self.path / TIMELINE

    @property
    def diagnosis(self) -> Path:
        """Where the diagnosis is."""
        return self.path / DIAGNOSIS

    @property
    def trace(self) -> Path:
        """Where the trace for viewers is."""
        return self.path / TRACE

    @property
    def report(self) -> Path:
        """Where the HTML report is."""
        return self.path / REPORT

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest; PerfwrapError when it is absent, damaged or newer than this perfwrap."""
        try:
            manifest = json.loads(self.manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PerfwrapError(
                f"{self.path} is not a run folder: it has no {MANIFEST}.",
                "Give the folder that `perfwrap run` named at its end.",
            ) from None
        except (OSError, ValueError) as error:
            raise PerfwrapError(
                f"{self.manifest} cannot be read: {error}",
                "The run cannot be read without it; record it again.",
            ) from error
        if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
            raise PerfwrapError(
                f"{self.manifest} is not a perfwrap manifest.",
                "Give the folder that `perfwrap run` named at its end.",
            )
        if manifest["format"] > FORMAT:
            raise PerfwrapError(
                f"{self.path} was written by a newer perfwrap (format {manifest['format']}, this one reads {FORMAT}).",
                "Upgrade perfwrap to read it.",
            )
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest in one step, so that a reader never sees half of it."""
        temporary = self.manifest.with_name(f".{MANIFEST}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps({"format": FORMAT, **manifest}, indent=1), encoding="utf-8")
            temporary.replace(self.manifest)
        except OSError:
            temporary.unlink(missing_ok=True)  # The disk is full: what is there must not take more of it.
            raise


def create(out: Path | None, command: list[str], name: str = "") -> RunFolder:
    """Make a new run folder, mode 0700: ``out`` itself, or one named after time and ``name`` or else the command.

    Raises PerfwrapError when ``out`` already holds something or cannot be made.
    """
    path = (out if out is not None else Path(RUNS) / _default_name(command, name)).absolute()
    try:
        if out is None:
            path = _make_first_free(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise PerfwrapError(
                f"{path} is not empty.", "Give --out a new folder; perfwrap never overwrites a run."
            )
        path.chmod(0o700)
        for name in (STARTS, JOURNAL):
            (path / name).mkdir()
    except OSError as error:
        raise PerfwrapError(
            f"The run folder {path} cannot be made: {error.strerror}.", "Choose another with --out DIR."
        ) from error
    return RunFolder(path)


def newest(parent: Path) -> Path | None:
    """Return the run below a folder that was started last, also one among several of a demo; None without any."""
    found = []
    for manifest in (*parent.glob(f"*/{MANIFEST}"), *parent.glob(f"*/*/{MANIFEST}")):
        try:
            start = RunFolder(manifest.parent).read_manifest().get("start")
        except PerfwrapError:
            continue
        found.append((start["wall_ns"] if isinstance(start, dict) else 0, manifest.parent))
    return max(found)[1] if found else None


def host_name() -> str:
    """Return this machine's name as the names of journals and start records have it."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", os.uname().nodename) or "host"


def create_parent(out: Path | None, name: str) -> Path:
    """Return a new place for several run folders: ``out``, or one named after time and ``name``."""
    path = (out if out is not None else Path(RUNS) / _default_name([name])).absolute()
    try:
        if out is None:
            return _make_first_free(path)
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise PerfwrapError(
            f"The folder {path} cannot be made: {error.strerror}.", "Choose another, new one with --out DIR."
        ) from error
    return path


def _default_name(command: list[str], name: str = "") -> str:
    """Return e.g. ``20260131-235959-train``: UTC time and the name, the script's stem or the program's name."""
    scripts = [word for word in command if word.endswith((".py", ".sh", ".pyz"))]
    stem = name or (Path(scripts[0] if scripts else command[0]).stem if command else "run")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem)[:40].strip("._") or "run"
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + safe


def _make_first_free(path: Path) -> Path:
    """Make ``path``, or ``path-2``, ``path-3``… when several runs start within one second, and return it."""
    number, free = 1, path
    while True:
        try:
            free.mkdir(mode=0o700, parents=True)
            return free
        except FileExistsError:
            number += 1
            free = path.with_name(f"{path.name}-{number}")
