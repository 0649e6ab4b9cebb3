"""How the command ended, in a few words: for the first lines of a report."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from typing import Any

from perfwrap import units

BY_SHELL = 128
"""A shell ends with this number and a signal's on top when that signal killed its last program."""
SCOPES = {"container": "the container", "machine": "the machine"}


def sentence(run: Mapping[str, Any]) -> str:
    """Return e.g. ``exit code 0`` or ``killed by SIGKILL: the container ran out of memory (limit 2 GiB)``."""
    if "imported" in run:
        return _imported(run["imported"])
    how, attached = run.get("exit"), run.get("attached")
    if isinstance(attached, dict):
        then = "which ended" if attached.get("ended") else "which went on"
        then = then if run.get("end") else "the end of that was not recorded"
        how = " with the recorder" if attached.get("recorder") else ""
        return f"attached to process {attached.get('pid')}{how}, {then}"
    if not isinstance(how, dict):
        return "its end was not recorded"
    number = how.get("signal")
    text = f"killed by {_signal(number)}" if isinstance(number, int) else _exit_code(how.get("code"))
    if how.get("core_dumped"):
        text += " (core dumped)"
    memory = how.get("oom_kill")
    return text + _out_of_memory(memory) if isinstance(memory, dict) else text


def _imported(files: object) -> str:
    """Return how many files of which formats were read."""
    found = Counter(str(file["format"]) for file in files) if isinstance(files, list) else Counter()
    counted = (f"{units.counted(count, 'file')} of {name}" for name, count in found.items())
    return "imported " + " and ".join(counted)


def _exit_code(code: object) -> str:
    """Return the code, with the signal that a shell means by it."""
    if isinstance(code, int) and code > BY_SHELL and code - BY_SHELL in set(signal.Signals):
        return f"exit code {code} (of a shell: {_signal(code - BY_SHELL)})"
    return f"exit code {code}"


def _signal(number: int) -> str:
    """Return a signal's name, or its number where it has none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _out_of_memory(memory: Mapping[str, Any]) -> str:
    """Return what ran out, and, unless that is how the command ended, whom the kernel killed for it."""
    limit = memory.get("limit_bytes")
    limited = f" (limit {units.size(limit)})" if isinstance(limit, int) else ""
    what = f"{SCOPES.get(str(memory.get('scope')), 'the machine')} ran out of memory{limited}"
    if memory.get("command"):
        return f": {what}"
    killed = units.counted(int(memory.get("processes") or 0), "process", "processes")
    pids = memory.get("pids")
    whose = "" if pids is None else ", of this run" if pids else ", none of them known to be of this run"
    return f"; meanwhile {what} and the kernel killed {killed}{whose}"
