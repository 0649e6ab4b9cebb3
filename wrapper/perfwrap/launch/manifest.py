"""The content of ``run.json``: written when a run starts and replaced when it has ended.

::

    command       list of words                     cwd       where it was started
    start, end    {monotonic_ns, wall_ns}           exit      {"code": n} or {"signal": n}, and more (below)
    clock         list of such pairs                host      facts about the machine (host.py)
    versions      perfwrap, launcher_python         options   the user's recording options
    environment   variables that affect speed       warnings  what could not be recorded, in sentences
    name, tags    the user's name of the run, if any; and words to find it by
    part          of a run that several launchers joined: {job, rank, local_rank, size, restart, leads}
    launcher      {"pid", "start_ticks", "namespace"}: the writer, as in /proc; shows whether it still runs
    processor_seconds  {"command": s, "monitors": s}: processor time of the command and of all that it waited for, which
                  includes the recorder; and of the monitors with py-spy, null until they have ended
    attached      {"pid": n, "ended": whether it ended, "recorder": whether it was loaded}, for a job that was already
                  running

``end`` and ``exit`` are null while the command runs, and stay so when the launcher was killed or when the
command could not be executed. ``exit`` also holds ``core_dumped`` (true) with the machine's ``core_pattern``
when the kernel dumped core, ``after_trial`` (true) when perfwrap had seen enough and ended the command, and
``oom_kill`` when memory ran out and processes of the run were, or may have been, killed for it::

    processes     how many were killed              scope        container (a limit) or machine
    limit_bytes   the limit, or null                command      whether the command was one of them
    pids          which of the run's processes; null where the kernel's log could not be read
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfwrap import __version__
from perfwrap.launch import environment, host, proc
from perfwrap.launch.options import Options
from perfwrap.redaction import masked, masked_words


def _directory() -> str:
    """Return the current directory, or its former name if it has been deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return str(Path("/proc/self/cwd").readlink())


def begin(
    command: list[str], options: Options, variables: Mapping[str, str], part: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the manifest of a run that is about to start; ``end`` and ``exit`` are still unknown."""
    now = clock_pair()
    called = {"name": masked(options.name)} if options.name else {}
    return {
        "command": masked_words(command),
        **called,
        **({} if part is None else {"part": part}),
        "tags": list(map(masked, options.tags)),
        "cwd": _directory(),
        "versions": {"perfwrap": __version__, "launcher_python": platform.python_version()},
        "options": _options(options),
        "environment": environment.kept(variables),
        "host": host.facts(),
        "launcher": proc.identity(),
        "start": now,
        "end": None,
        "clock": [now],
        "exit": None,
        "warnings": [],
    }


def _options(options: Options) -> dict[str, Any]:
    """Return the options for JSON; those for nsys and ncu may contain secrets."""
    handed = {
        name: words and masked_words(list(words))
        for name, words in (("nsys", options.nsys), ("ncu", options.ncu))
    }
    own = {"name": masked(options.name), "tags": list(map(masked, options.tags))}
    own["overlay"] = [str(file.path) for file in options.overlay]
    return asdict(options) | {"out": None if options.out is None else str(options.out)} | own | handed


def finish(
    manifest: dict[str, Any], how: dict[str, Any], end: dict[str, int], warnings: list[str]
) -> dict[str, Any]:
    """Return the manifest of a run whose command ended then, as ``ending.describe`` says."""
    return manifest | {"end": end, "clock": [*manifest["clock"], end], "exit": how, "warnings": warnings}


def clock_pair() -> dict[str, int]:
    """Return the monotonic and the wall clock of one moment, in nanoseconds."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return {"monotonic_ns": (before + after) // 2, "wall_ns": wall}
