"""Which processes of a command can be recorded: it is run to its end, and its recording is deleted."""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perfwrap import units
from perfwrap.checkup.check_line import Line
from perfwrap.journal_words import Words, read_words
from perfwrap.launch import session
from perfwrap.launch.options import Options
from perfwrap.run_folder import START_FIELDS, RunFolder

MAX_LINES = 12
"""Processes that are listed; a command may start thousands."""
UNREACHED = "process/"
PROBE = "probe/"


@dataclass(frozen=True)
class Reached:
    """The Python processes of a run."""

    starts: list[dict[str, str]]
    """Start records, by START_FIELDS."""
    recorded: list[Words]
    unreached: dict[str, str]
    """Why the recorder was not loaded into a process, by its pid."""
    commands: dict[str, str]
    """Command lines by pid."""


def examine_command(command: list[str]) -> tuple[list[Line], bool]:
    """Run the command with unchanged output; return its processes, and whether training can be recorded.

    Raises PerfwrapError or OSError if no run folder can be created.
    """
    with tempfile.TemporaryDirectory(prefix="perfwrap-doctor-") as folder:
        run = RunFolder(Path(folder, "run"))
        status, said = _run(command, run, Path(folder, "said"))
        found = _read(run)
    ended = (
        f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
    )
    works = any(words.facts.get("torch") for words in found.recorded)
    lines = [Line("yes" if works else "no", "command", f"ended with {ended}; {_summary(found)}")]
    lines += [Line("no", "recording", problem) for problem in said]
    lines += [_of_start(start, found.recorded) for start in found.starts[:MAX_LINES]]
    lines += [_of_unreached(pid, found) for pid in list(found.unreached)[:MAX_LINES]]
    return lines, works


def _run(command: list[str], run: RunFolder, said: Path) -> tuple[int, list[str]]:
    """Run the command in a separate launcher; return its wait status and the messages of the launcher."""
    options = Options(out=run.path, report=False)
    launcher = os.fork()
    if launcher == 0:
        try:
            session.run(command, options, lambda line: _note(said, line), lambda folder: None)
        finally:
            os._exit(1)
    # Ctrl-C is for the command; the processes until then are still reported.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(launcher, 0)
    signal.signal(signal.SIGINT, previous)
    lines = said.read_text(encoding="utf-8").splitlines() if said.exists() else []
    recorded = f"perfwrap: recorded in {run.path}"
    return status, [line.removeprefix("perfwrap: ") for line in lines if not line.startswith(recorded)]


def _note(said: Path, line: str) -> None:
    with open(said, "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(line + "\n")


def _read(run: RunFolder) -> Reached:
    """Return the Python processes of the run."""
    starts = [
        dict(zip(START_FIELDS, line.split("\t"), strict=False))
        for path in run.starts.glob("*.log")
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    words = [read_words(path) for path in sorted(run.journal.glob("*.pwj"))]
    watched = [journal for journal in words if journal.facts.get("role") == "monitor"]
    return Reached(
        [start for start in starts if start.get("event") in ("start", "failed") and "argv" in start],
        [journal for journal in words if journal.facts.get("role") != "monitor"],
        {
            what[len(UNREACHED) :]: note
            for journal in watched
            for what, _, note in journal.coverage
            if what.startswith(UNREACHED) and what[len(UNREACHED) :].isdecimal()
        },
        {
            key.split("/")[1]: value
            for journal in watched
            for key, value in journal.facts.items()
            if key.startswith(UNREACHED) and key.endswith("/cmdline")
        },
    )


def _summary(found: Reached) -> str:
    """Return how many Python processes there were and in how many the recorder was loaded."""
    with_torch = sum(bool(words.facts.get("torch")) for words in found.recorded)
    started = sum(start["event"] == "start" for start in found.starts)
    pieces = [
        f"recorder loaded in {units.counted(started, 'Python process', 'Python processes')}",
        f"torch used in {with_torch}",
    ]
    if found.unreached:
        pieces.append(f"not loaded in {len(found.unreached)}")
    if not found.starts and not found.unreached:
        return "it started no Python"
    return ", ".join(pieces)


def _of_start(start: dict[str, str], recorded: list[Words]) -> Line:
    """Return the line of a Python that the recorder was loaded into."""
    program = " ".join(start["argv"].split("\x1f"))
    if start["event"] == "failed":
        return Line("no", f"process {start['pid']}", f"the recorder failed to start: {start['argv']}")
    words = next((words for words in recorded if str(words.pid) == start["pid"]), None)
    how = f"Python {start['python']}, recorder loaded by {start['vector']}"
    if words is None or not words.facts.get("torch"):
        return Line("partly", f"process {start['pid']}", f"{how}; it did not import torch: {program}")
    probes = [(what[len(PROBE) :], note) for what, _, note in words.coverage if what.startswith(PROBE)]
    failed = dict(note for note in probes if note[1])
    working = [name for name in dict.fromkeys(name for name, _ in probes) if name not in failed]
    pieces = [
        how,
        f"role {words.facts.get('role', 'unknown')}",
        f"torch {words.facts['torch']}",
        f"probes {', '.join(working) or 'none'}",
        *(f"probe {name} {note}" for name, note in failed.items()),
    ]
    return Line("partly" if failed else "yes", f"process {start['pid']}", f"{'; '.join(pieces)}: {program}")


def _of_unreached(pid: str, found: Reached) -> Line:
    return Line("no", f"process {pid}", f"{found.unreached[pid]}: {found.commands.get(pid, 'unknown')}")
