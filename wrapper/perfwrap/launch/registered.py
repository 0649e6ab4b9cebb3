"""Wait briefly for Python processes of the run that outlive the command."""

from __future__ import annotations

import time

from perfwrap.launch import proc
from perfwrap.launch.signals import Supervisor
from perfwrap.run_folder import START_FIELDS, RunFolder, host_name

PATIENCE_SECONDS = 2.0
"""Helpers such as multiprocessing's resource tracker end after the command by design; daemons never do."""
LOOK_SECONDS = 0.02
PID, START_TICKS = START_FIELDS.index("pid"), START_FIELDS.index("start_ticks")


def wait(folder: RunFolder, supervisor: Supervisor) -> None:
    """Wait until all processes with a start record have ended, the time is over, or the user interrupts."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    alive = recorded(folder)
    while alive := {identity for identity in alive if proc.runs(*identity)}:
        if time.monotonic() > deadline or supervisor.pause(LOOK_SECONDS):
            return


def recorded(folder: RunFolder) -> set[tuple[int, int]]:
    """Return pid and start time of each Python process with a start record on this machine."""
    try:
        lines = (folder.starts / f"{host_name()}.log").read_bytes().splitlines()
    except OSError:
        return set()
    rows = [line.split(b"\t") for line in lines]
    found = [(row[PID], row[START_TICKS]) for row in rows if len(row) == len(START_FIELDS)]
    return {(int(pid), int(ticks)) for pid, ticks in found if pid.isdigit() and ticks.isdigit()}
