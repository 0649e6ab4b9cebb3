"""How the command ended, for the first lines of a report."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfwrap import units

BY_SHELL = 128
"""A shell exits with this number plus that of the signal that killed its last program."""
SCOPES = {"container": "the container", "machine": "the machine"}


def sentence(run: Mapping[str, Any]) -> str:
    """Return e.g. ``exit code 0`` or ``killed by SIGKILL: the container ran out of memory (limit 2 GiB)``."""
    if "imported" in run:
        return _imported(run["imported"])
    how, attached = run.get("exit"), run.get("attached")
    if isinstance(attached, dict):
        then = "which ended" if attached.get("ended") else "which is still running"
        then = then if run.get("end") else "no end was recorded"
        how = " with the recorder" if attached.get("recorder") else ""
        return f"attached to process {attached.get('pid')}{how}, {then}"
    if not isinstance(how, dict):
        return "no end was recorded"
    if _ended_by_perfwrap(run):
        return "ended by perfwrap after enough steps"
    number = how.get("signal")
    text = f"killed by {_signal(number)}" if isinstance(number, int) else _exit_code(how.get("code"))
    if how.get("core_dumped"):
        text += " (core dumped)"
    memory = how.get("oom_kill")
    return text + _out_of_memory(memory) if isinstance(memory, dict) else text


def failure(run: Mapping[str, Any]) -> str:
    """Return that the command failed and with what; empty if it did not, or is not the command of a recorded run."""
    how = run.get("exit")
    if "imported" in run or run.get("attached") or not isinstance(how, dict) or how.get("code") == 0:
        return ""
    if _ended_by_perfwrap(run):
        return ""
    missing = _missing_script(run)
    if missing and how.get("code") == 2:
        return f"The command failed ({sentence(run)}): there is no file {missing}."
    hint = "" if "signal" in how or "oom_kill" in how else " Its error message is in its output."
    return f"The command failed: {sentence(run)}.{hint}"


def _ended_by_perfwrap(run: Mapping[str, Any]) -> bool:
    """Return whether a trial's process interrupted itself, as it does after enough steps."""
    options, how = run.get("options"), run.get("exit")
    if isinstance(how, dict) and how.get("after_trial"):
        return True
    trial = options.get("trial") if isinstance(options, dict) else None
    steps = trial.get("steps") if isinstance(trial, dict) else None
    return bool(steps) and isinstance(how, dict) and how.get("signal") == signal.SIGINT


def _missing_script(run: Mapping[str, Any]) -> str:
    """Return the Python script of the command if it does not exist."""
    scripts = [str(word) for word in run.get("command") or () if str(word).endswith(".py")][:1]
    folder = Path(str(run.get("cwd") or "."))
    return next((script for script in scripts if folder.is_dir() and not (folder / script).exists()), "")


def _imported(files: object) -> str:
    """Return the number of files of each format."""
    found = Counter(str(file["format"]) for file in files) if isinstance(files, list) else Counter()
    counted = (f"{units.counted(count, 'file')} of {name}" for name, count in found.items())
    return "imported " + " and ".join(counted)


def _exit_code(code: object) -> str:
    """Return the exit code, with the signal that a shell encodes in it."""
    if isinstance(code, int) and code > BY_SHELL and code - BY_SHELL in set(signal.Signals):
        return f"exit code {code} (from a shell: {_signal(code - BY_SHELL)})"
    return f"exit code {code}"


def _signal(number: int) -> str:
    """Return the name of a signal, or its number if it has no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _out_of_memory(memory: Mapping[str, Any]) -> str:
    """Return what ran out of memory and, unless that ended the command, which processes the kernel killed."""
    limit = memory.get("limit_bytes")
    limited = f" (limit {units.size(limit)})" if isinstance(limit, int) else ""
    what = f"{SCOPES.get(str(memory.get('scope')), 'the machine')} ran out of memory{limited}"
    if memory.get("command"):
        return f": {what}"
    killed = units.counted(int(memory.get("processes") or 0), "process", "processes")
    pids = memory.get("pids")
    whose = "" if pids is None else ", of this run" if pids else ", none of this run as far as known"
    return f"; meanwhile {what} and the kernel killed {killed}{whose}"
