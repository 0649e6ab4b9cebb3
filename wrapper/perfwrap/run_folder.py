"""Names and manifest of a run folder: the contract between recording and reading.

::

    run.json                 manifest, written by the launcher at start and again at the end
    inject/                  the folder on the command's PYTHONPATH: shim, recorder source, settings
    starts/<host>.log        one line per Python process with the recorder (see START_FIELDS)
    journal/*.pwj            one journal per writer; the format is specified in the recorder's journal_format.py
    stalls/<host>-<n>.json   the state of a stalled run, written during the stall; described in docs/stalls.md
    memory/*.pickle          the content of a GPU's memory when it ran out; see sources/memory_snapshot.py
    tools/                   files of other tools, kept as they are
    tools/py-spy/            recordings of py-spy, and <host>.log with their times (see PY_SPY_FIELDS)
    tools/window-*.json      recordings of torch.profiler of some steps: window-<host>-<pid>.json
    timeline/*.parquet       the saved timeline; may be deleted and rebuilt
    diagnosis.json           the diagnosis; schema in docs/diagnosis-json.md
    trace.json.gz            the timeline for ui.perfetto.dev; described in docs/run-folder.md
    report.html              the report as one page that works offline
    steps/                   each trainer's steps as a table; described in docs/run-folder.md
    parts/<name>/            if several launchers joined the run: a run folder for each of them; the outer folder then
                             has only run.json, with ``job``, and the files made from all parts
    exports/                 output of `perfwrap export`, unless another place was given
    edited.log               what ran with edited source: a line with the process and the file, separated by a tab
    monitors.log             errors of the monitors
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
from perfwrap.manifest_shape import first_fault
from perfwrap.private_files import read_plain, replace_text

FORMAT = 2
"""Version of the run folder. 1: first. 2: a run that several launchers joined, with their folders below parts/."""
OF_ONE_LAUNCHER = 1
"""The version of a run folder that one launcher wrote."""

MAX_MANIFEST_BYTES = 64 << 20

RUNS = "perfwrap-runs"
"""The folder of new run folders, in the current directory, unless the user gives another place.

With the hyphen it is not a package: setuptools does not build a project with a second package.
"""
OLD_RUNS = "perfwrap_runs"
"""The former name of that folder; runs in it are still found by name."""
IGNORED_BY_GIT = "# Made by perfwrap.\n*\n"
"""The .gitignore of perfwrap's folders, so that git, ruff, Ray and others ignore them."""
MANIFEST = "run.json"
DELETED = "The current directory has been deleted."
ELSEWHERE = "Change to one that exists, for example: cd ~"

INJECT = ".inject"
"""The dot keeps mypy and `pytest --doctest-modules` from taking the recorder's files for the project's."""
STARTS = "starts"
JOURNAL = "journal"
MEMORY = "memory"
STALLS = "stalls"
TOOLS = "tools"
PY_SPY = "py-spy"
TIMELINE = "timeline"
DIAGNOSIS = "diagnosis.json"
MAX_DOCUMENT_BYTES = 256 << 20
"""Largest diagnosis.json or try.json that is read."""
TRACE = "trace.json.gz"
REPORT = "report.html"
STEPS = "steps"
PARTS = "parts"
EXPORTS = "exports"
MONITORS_LOG = "monitors.log"
OWN = frozenset(
    (
        *(
            MANIFEST,
            INJECT,
            STARTS,
            JOURNAL,
            MEMORY,
            STALLS,
            TOOLS,
            TIMELINE,
            DIAGNOSIS,
            TRACE,
            REPORT,
            STEPS,
        ),
        *(PARTS, EXPORTS, MONITORS_LOG),
    )
)
"""All names that perfwrap creates in a run folder; one with anything else in it is never removed."""

START_FIELDS = ("event", "pid", "ppid", "start_ticks", "monotonic_ns", "python", "vector", "argv")
"""Tab-separated fields of a line in ``starts/<host>.log``.

``event`` is ``start`` (an interpreter began), ``fork`` (a process with the recorder forked) or ``failed``
(perfwrap's code raised there: ``argv`` has the error); ``start_ticks`` is field 22 of /proc/PID/stat;
``vector`` says which file loaded the recorder (sitecustomize, usercustomize, pth), followed by ``+cwd`` if the
current directory was put back into sys.path; ``argv`` is joined by U+001F with tabs and newlines replaced by
spaces.
"""

PY_SPY_FIELDS = {
    "begin": ("file", "pid", "start_ticks", "rate_hz", "began_ns"),
    "end": ("file", "written_ns", "status", "said"),
}
"""Tab-separated fields of a line in ``tools/py-spy/<host>.log``, by its first field.

``file`` is the name of the recording, maybe followed by ``.gz``; times are CLOCK_MONOTONIC. py-spy was started at
``began_ns`` and wrote the recording at ``written_ns``, 0 if it did not; ``status`` is its wait status and ``said`` its
error messages. A recording without an ``end`` outlived the monitors.
"""


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The path of ``run.json``."""
        return self.path / MANIFEST

    @property
    def journal(self) -> Path:
        """The folder of the journals."""
        return self.path / JOURNAL

    @property
    def starts(self) -> Path:
        """The folder of the start records."""
        return self.path / STARTS

    @property
    def inject(self) -> Path:
        """The folder on the command's PYTHONPATH."""
        return self.path / INJECT

    @property
    def stalls(self) -> Path:
        """The folder of the stall files."""
        return self.path / STALLS

    @property
    def py_spy(self) -> Path:
        """The folder of py-spy's recordings."""
        return self.path / TOOLS / PY_SPY

    @property
    def timeline(self) -> Path:
        """The folder of the saved timeline."""
        return self.path / TIMELINE

    @property
    def diagnosis(self) -> Path:
        """The path of the diagnosis."""
        return self.path / DIAGNOSIS

    @property
    def trace(self) -> Path:
        """The path of the trace for viewers."""
        return self.path / TRACE

    @property
    def report(self) -> Path:
        """The path of the HTML report."""
        return self.path / REPORT

    @property
    def steps(self) -> Path:
        """The folder of the step tables."""
        return self.path / STEPS

    @property
    def whole(self) -> RunFolder:
        """The folder of the run that this one is a part of; itself if it is the whole run."""
        above = self.path.absolute().parent
        return RunFolder(above.parent) if above.name == PARTS and self.is_part else self

    @property
    def is_part(self) -> bool:
        """Whether one of several launchers of a run wrote it."""
        return "part" in self._read_own()

    @property
    def is_joined(self) -> bool:
        """Whether several launchers joined this run."""
        return (self.path / PARTS).is_dir()

    def parts(self) -> tuple[RunFolder, ...]:
        """Return the folders of the launchers that joined this run, by name; itself if there was only one."""
        if not self.is_joined:
            return (self,)
        found = sorted((self.path / PARTS).glob(f"*/{MANIFEST}"))
        return tuple(RunFolder(path.parent) for path in found if not path.parent.name.startswith("."))

    def why_not_ours(self) -> str:
        """Return why this is not a run folder, or what else is in it, as a phrase after its path; empty if neither."""
        manifest = self.read_manifest()
        versions = manifest.get("versions")
        known = manifest.get("start") or manifest.get("imported")
        is_ours = isinstance(versions, dict) and "perfwrap" in versions
        if not manifest.get("command") or not (is_ours and known or "job" in manifest):
            return f"has a {MANIFEST} that perfwrap did not write"
        strange = sorted(path.name for path in self.path.iterdir() if not _is_own(path.name))
        return f"holds {strange[0]}, which perfwrap did not put there" if strange else ""

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest; PerfwrapError if it is missing, damaged or newer than this perfwrap.

        If several launchers joined the run: that of the leading part, with ``exit`` of the first one that failed, and
        with ``nodes``, a list with the facts of each part. If ranks were restarted, ``end`` and ``exit`` are those of
        the last start.
        """
        manifest = self._read_own()
        return _together(manifest, self.parts()) if "job" in manifest else manifest

    def _read_own(self) -> dict[str, Any]:
        """Return the content of the folder's own run.json."""
        try:
            manifest = json.loads(read_plain(self.manifest, MAX_MANIFEST_BYTES).decode("utf-8"))
        except FileNotFoundError:
            raise PerfwrapError(
                f"{self.path} is not a run folder: it has no {MANIFEST}.",
                "Give a run folder; to list all runs: perfwrap list",
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise PerfwrapError(
                f"Cannot read {self.manifest}: {error}",
                "The run cannot be read without it; record it again.",
            ) from error
        if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
            raise PerfwrapError(
                f"{self.manifest} is not a perfwrap manifest.",
                "Give a run folder; to list all runs: perfwrap list",
            )
        if manifest["format"] > FORMAT:
            raise PerfwrapError(
                f"{self.path} was written by a newer perfwrap (format {manifest['format']}; this one reads {FORMAT}).",
                "Upgrade perfwrap to read it.",
            )
        fault = first_fault(manifest)
        if fault is not None:
            raise PerfwrapError(
                f"{self.manifest} is damaged: its field {fault!r} is not valid.",
                "The run cannot be read without it; record it again.",
            )
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest atomically, so that a reader never sees an incomplete one."""
        replace_text(self.manifest, as_text(manifest))


def _is_own(name: str) -> bool:
    """Return whether perfwrap creates this name in a run folder, even if only for a moment."""
    return name in OWN or any(name == f".{own}" or name.startswith(f".{own}.") for own in OWN)


def as_text(manifest: dict[str, Any]) -> str:
    """Return the manifest in a file."""
    return json.dumps({"format": FORMAT if "job" in manifest else OF_ONE_LAUNCHER, **manifest}, indent=1)


def _together(job: dict[str, Any], parts: tuple[RunFolder, ...]) -> dict[str, Any]:
    """Return one manifest for a run that several launchers joined."""
    known = []
    for part in parts:
        try:
            known.append((part.path.name, part._read_own()))
        except PerfwrapError:
            continue  # That launcher has just started, or ended before it wrote its manifest.
    if not known:
        return {**job, "nodes": []}
    # The leading launcher is that of rank 0, or the first one if ranks are unknown.
    known.sort(key=lambda each: (not each[1].get("part", {}).get("leads"), _began(each[1]), each[0]))
    newest = max(_start(manifest) for _, manifest in known)
    last = [manifest for _, manifest in known if _start(manifest) == newest]
    exits = [manifest.get("exit") for manifest in last]
    failed = next((how for how in exits if how and how != {"code": 0}), None)
    nodes = [
        {
            "part": name,
            "host": (manifest.get("host") or {}).get("name"),
            **{key: manifest.get(key) for key in ("start", "end", "exit")},
        }
        for name, manifest in sorted(known, key=lambda each: each[0])
    ]
    first = known[0][1]
    ended = {"end": _end(first, last[0]), "exit": failed or exits[0]}
    return {**first, "format": job["format"], "job": job["job"], **ended, "nodes": nodes}


def _start(manifest: dict[str, Any]) -> int:
    """Return which start of the ranks a launcher belongs to, from 0."""
    return int(manifest.get("part", {}).get("restart") or 0)


def _end(first: dict[str, Any], last: dict[str, Any]) -> dict[str, int] | None:
    """Return when the leader of the last start ended, on the clock of the first one; None if it has not."""
    start, end = first.get("start"), last.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict) or _clock(first) == _clock(last):
        return end
    # Another machine leads since then: only the wall clocks are comparable.
    return {**end, "monotonic_ns": start["monotonic_ns"] + end["wall_ns"] - start["wall_ns"]}


def _clock(manifest: dict[str, Any]) -> object:
    """Return the id of the clock of a launcher's machine."""
    return (manifest.get("host") or {}).get("clock")


def _began(manifest: dict[str, Any]) -> int:
    """Return when a run began, on its machine's wall clock; 0 if unknown."""
    start = manifest.get("start")
    return int(start["wall_ns"]) if isinstance(start, dict) else 0


def here(path: Path) -> Path:
    """Return a path relative to the current directory as absolute; PerfwrapError if the directory has been deleted."""
    try:
        return path.absolute()
    except FileNotFoundError:
        raise PerfwrapError(DELETED, ELSEWHERE) from None


def create(out: Path | None, command: list[str], name: str = "") -> RunFolder:
    """Create a new run folder, mode 0700: ``out`` itself, or one named after time and ``name`` or else the command.

    Raises PerfwrapError if ``out`` is not empty or cannot be created.
    """
    path = here(out if out is not None else Path(RUNS) / _default_name(command, name))
    try:
        make_parent(path)
        if out is None:
            path = _make_first_free(path)
        path.mkdir(mode=0o700, exist_ok=True)
        if any(path.iterdir()):
            hint = "Give --out a new folder; perfwrap never overwrites a run."
            if (path / PARTS).is_dir():
                hint = "It is a run of several launchers: to join it, give the --run-id that they have."
            raise PerfwrapError(f"{path} is not empty.", hint)
        path.chmod(0o700)
        fill(path)
    except OSError as error:
        raise PerfwrapError(
            f"Cannot create the run folder {path}: {error.strerror}.", "Choose another with --out DIR."
        ) from error
    return RunFolder(path)


def make_parent(path: Path) -> None:
    """Create the parent of a run folder; git ignores the default one, unless it already exists."""
    new = path.parent.name == RUNS and not path.parent.exists()
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if new:
        ignore(path.parent)


def ignore(folder: Path) -> None:
    """Make git, and tools that follow it, ignore a folder; a failure to write is ignored."""
    try:
        (folder / ".gitignore").write_text(IGNORED_BY_GIT, encoding="ascii")
    except OSError:
        return


def fill(path: Path) -> None:
    """Create the initial folders in a launcher's run folder."""
    for name in (STARTS, JOURNAL):
        (path / name).mkdir(mode=0o700)


def host_name() -> str:
    """Return this machine's name as in the names of journals and start records."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", os.uname().nodename) or "host"


def create_parent(out: Path | None, name: str) -> Path:
    """Return a new place for several run folders: ``out``, or one named after time and ``name``."""
    path = here(out if out is not None else Path(RUNS) / _default_name([name]))
    try:
        make_parent(path)
        if out is None:
            return _make_first_free(path)
        path.mkdir(mode=0o700)
    except OSError as error:
        raise PerfwrapError(
            f"Cannot create the folder {path}: {error.strerror}.", "Choose another, new one with --out DIR."
        ) from error
    return path


def _default_name(command: list[str], name: str = "") -> str:
    """Return e.g. ``20260131-235959-train``: UTC time and the name, the script's stem or the program's name."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + stem(command, name)


def stem(command: list[str], name: str = "") -> str:
    """Return the run's part of its folder's name: the given name, the script's stem or the program's name."""
    scripts = [word for word in command if word.endswith((".py", ".sh", ".pyz"))]
    return safe(name or (Path(scripts[0] if scripts else command[0]).stem if command else "run"))


def safe(text: str) -> str:
    """Return the text as a valid part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:40].strip("._") or "run"


def _make_first_free(path: Path) -> Path:
    """Create ``path``, or ``path-2``, ``path-3``… if several runs start within one second, and return it."""
    number, free = 1, path
    while True:
        try:
            free.mkdir(mode=0o700)
            return free
        except FileExistsError:
            number += 1
            free = path.with_name(f"{path.name}-{number}")
