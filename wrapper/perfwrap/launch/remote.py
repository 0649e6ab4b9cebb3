"""Bring the recorder into a job that runs already, by ``sys.remote_exec`` of Python 3.14 and later.

Only a Python of the program's own version can ask that of it, so its own executable is run for it. The program then
runs ``inject/attached.py`` in its main thread, at the next operation of Python's: not while it waits inside of torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from perfwrap.launch import injection, proc
from perfwrap.launch.options import Options
from perfwrap.run_folder import START_FIELDS, RunFolder

TORCH = "libtorch_python"
"""Is part of a file that is mapped where torch has been imported."""
INTERPRETER = re.compile(r"python(\d+(\.\d+)*)?t?$")
"""What the executable of a Python is called."""
ASK = """
import sys
if sys.version_info < (3, 14):
    sys.exit("it is Python %d.%d, and only 3.14 and later can be asked" % sys.version_info[:2])
try:
    sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except Exception as error:
    sys.exit("%s: %s" % (type(error).__name__, error))
"""
ASK_SECONDS = 30.0
ANSWER_SECONDS = 20.0
"""How long the programs have until they say that they have a recorder; a long call of torch's may come first."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Brought:
    """What became of it."""

    pids: tuple[int, ...]
    """The processes that record now."""
    problems: tuple[str, ...]
    """Why others do not, in sentences."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is to be said about it."""
        if not self.pids:
            return self.problems
        return *self.problems, f"the recorder is in {', '.join(map(str, self.pids))} until the watching ends"


NOBODY = Brought((), ())


def bring_in(folder: RunFolder, options: Options, pid: int, watching: ExitStack) -> Brought:
    """Bring the recorder into each process of a job that has imported torch, until ``watching`` is closed.

    Raises PerfwrapError or OSError when what runs inside cannot be written into the run folder.
    """
    injection.prepare(
        folder, {}, budget_bytes=options.budget_bytes, max_overhead=options.max_overhead, watched=True
    )
    script = injection.add_attached(folder)
    watching.callback(os.close, injection.hold_watch(folder))
    found = list(_with_torch(pid))
    problems = [] if found else [f"No process of the job has imported torch: {pid} and what it started."]
    asked = []
    for each in found:
        refusal = _ask(each, script)
        if refusal is None:
            asked.append(each)
        else:
            problems.append(f"Process {each} has no recorder: {refusal}.")
    recording, failed = _answers(folder, asked)
    problems += [f"Process {each} has no recorder: {why}." for each, why in failed.items()]
    for each in asked:
        if each not in recording and each not in failed:
            problems.append(
                f"Process {each} has not come by in {ANSWER_SECONDS:g} s; its recorder starts when it does."
            )
    return Brought(tuple(recording), tuple(problems))


def _with_torch(pid: int) -> Iterator[int]:
    """Return the processes of a job, parents first, that have imported torch."""
    for each in (pid, *proc.descendants(pid)):
        try:
            maps = Path(f"/proc/{each}/maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if TORCH in maps:
            yield each


def _ask(pid: int, script: Path) -> str | None:
    """Ask the process to run the script; return why it cannot be asked, None when it has been."""
    place = Path(f"/proc/{pid}")
    try:
        executable = (place / "exe").readlink()
        if place.stat().st_uid != os.geteuid():
            return "it belongs to another user, who may not read the run folder"
        seen = place / "root" / script.relative_to("/")
        if not (seen.exists() and seen.samefile(script)):
            return f"it does not see {script} where it runs"
    except OSError as error:
        return f"{error.strerror or error}"
    if not INTERPRETER.match(executable.name):
        return f"it runs {executable}, which is no interpreter that could ask it"
    words = [str(executable), "-I", "-S", "-c", ASK, str(pid), str(script)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ASK_SECONDS)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} could not be asked: {error}"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
    may_not = "PermissionError" in said or "Operation not permitted" in said
    return said + ("; the system lets nobody look into it, sudo may help" if may_not else "")


def _answers(folder: RunFolder, asked: list[int]) -> tuple[list[int], dict[int, str]]:
    """Wait for what the processes say; return those that record, and why others do not."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        recording, failed = _read_answers(folder)
        left = [pid for pid in asked if pid not in recording and pid not in failed and proc.status(pid)]
        if not left or time.monotonic() > deadline:
            return [pid for pid in recording if pid not in failed], failed
        time.sleep(LOOK_SECONDS)


def _read_answers(folder: RunFolder) -> tuple[list[int], dict[int, str]]:
    recording = [int(path.stem.split("-")[-3]) for path in folder.journal.glob("*-*-*.pwj")]
    failed: dict[int, str] = {}
    for path in folder.starts.glob("*.log"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            found = dict(zip(START_FIELDS, line.split("\t"), strict=False))
            if found.get("event") == "failed":
                failed[int(found["pid"])] = found["argv"]
    return recording, failed
