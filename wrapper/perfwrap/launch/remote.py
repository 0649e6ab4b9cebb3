"""Load the recorder into a running job, with ``sys.remote_exec`` of Python 3.14 and later.

Only a Python of the same version can do that, so the program's own executable is run for it. The program then runs
``inject/attached.py`` in its main thread, at the next operation of Python: not while it waits inside torch.
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
"""Part of the name of a file that is mapped if torch has been imported."""
INTERPRETER = re.compile(r"python(\d+(\.\d+)*)?t?$")
"""Pattern of the name of a Python executable."""
ASK = """
import sys
if sys.version_info < (3, 14):
    sys.exit("it is Python %d.%d, but this needs 3.14 or later" % sys.version_info[:2])
try:
    sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except Exception as error:
    sys.exit("%s: %s" % (type(error).__name__, error))
"""
ASK_SECONDS = 30.0
ANSWER_SECONDS = 20.0
"""How long programs have to confirm that the recorder is loaded; a long call of torch may come first."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Brought:
    """The result."""

    pids: tuple[int, ...]
    """The processes with the recorder."""
    problems: tuple[str, ...]
    """Why others have none, in sentences."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The messages for the user."""
        if not self.pids:
            return self.problems
        return (
            *self.problems,
            f"the recorder is loaded in {', '.join(map(str, self.pids))} until perfwrap stops",
        )


NO_RECORDERS = Brought((), ())


def offer(folder: RunFolder, options: Options, watching: ExitStack) -> Path:
    """Return the script that loads the recorder into the process that runs it, until ``watching`` is closed.

    Raises PerfwrapError or OSError if the recorder cannot be written into the run folder.
    """
    injection.prepare(
        folder, {}, budget_bytes=options.budget_bytes, max_overhead=options.max_overhead, watched=True
    )
    script = injection.add_attached(folder)
    watching.callback(os.close, injection.hold_watch(folder))
    return script


def bring_in(folder: RunFolder, options: Options, pid: int, watching: ExitStack) -> Brought:
    """Load the recorder into each process of a job that has imported torch, until ``watching`` is closed.

    Raises PerfwrapError or OSError if the recorder cannot be written into the run folder.
    """
    script = offer(folder, options, watching)
    found = list(_with_torch(pid))
    problems = (
        [] if found else [f"No process of the job has imported torch (process {pid} and its children)."]
    )
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
                f"Process {each} did not respond within {ANSWER_SECONDS:g} s; its recorder starts when it does."
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
    """Request that the process runs the script; return why that failed, or None."""
    place = Path(f"/proc/{pid}")
    try:
        executable = (place / "exe").readlink()
        if place.stat().st_uid != os.geteuid():
            return "it belongs to another user, who cannot read the run folder"
        seen = place / "root" / script.relative_to("/")
        if not (seen.exists() and seen.samefile(script)):
            return f"it cannot see {script} (another container or mount)"
    except OSError as error:
        return f"{error.strerror or error}"
    if not INTERPRETER.match(executable.name):
        return f"it runs {executable}, which is not a Python interpreter"
    words = [str(executable), "-I", "-S", "-c", ASK, str(pid), str(script)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ASK_SECONDS)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} could not be run: {error}"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or ["no message"])[-1]
    may_not = "PermissionError" in said or "Operation not permitted" in said
    return said + ("; no permission, try sudo" if may_not else "")


def _answers(folder: RunFolder, asked: list[int]) -> tuple[list[int], dict[int, str]]:
    """Wait for the answers of the processes; return those with the recorder, and why others have none."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        recording, failed = read_answers(folder)
        left = [pid for pid in asked if pid not in recording and pid not in failed and proc.status(pid)]
        if not left or time.monotonic() > deadline:
            return [pid for pid in recording if pid not in failed], failed
        time.sleep(LOOK_SECONDS)


def read_answers(folder: RunFolder) -> tuple[list[int], dict[int, str]]:
    """Return the processes that have the recorder, and why others have none."""
    recording = [int(path.stem.split("-")[-3]) for path in folder.journal.glob("*-*-*.pwj")]
    failed: dict[int, str] = {}
    for path in folder.starts.glob("*.log"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            found = dict(zip(START_FIELDS, line.split("\t"), strict=False))
            if found.get("event") == "failed":
                failed[int(found["pid"])] = found["argv"]
    return recording, failed
