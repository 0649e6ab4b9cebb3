"""Settles, before anything runs, who samples stacks: py-spy, or the recorder where py-spy may not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from perfwrap.errors import PerfwrapError
from perfwrap.launch import descriptors, kernel
from perfwrap.launch.options import Options
from perfwrap.monitors import pyspy_tool


def find_py_spy() -> str:
    """Return the py-spy to use; PerfwrapError where there is none."""
    tool = pyspy_tool.find()
    if tool is None:
        raise PerfwrapError("py-spy is not installed, so it cannot sample stacks.", pyspy_tool.INSTALL)
    return tool


def with_py_spy(options: Options, rate_hz: float, native: bool, say: Callable[[str], None]) -> Options:
    """Return the options with py-spy in them, or with the recorder's sampler where the system refuses py-spy.

    Which of both is tried on this very process. PerfwrapError when py-spy is not installed, or nobody could
    start it.
    """
    if not options.monitors:
        raise PerfwrapError(
            "py-spy is one of the monitors, and --no-monitors forbids them.",
            "Leave --no-monitors out, or sample with --sample 20.",
        )
    tool = find_py_spy()
    descriptors.fill_standard()
    restricted = kernel.yama_restricts()
    if restricted:
        kernel.allow_ptrace(os.getpid())
    refused = pyspy_tool.refusal(tool, os.getpid(), native, granted=restricted)
    if restricted:
        kernel.allow_ptrace(0)
    if refused is None:
        return replace(options, py_spy=tool, py_spy_hz=rate_hz, py_spy_native=native)
    why, cure = refused
    say(
        f"perfwrap: py-spy may not look into other processes here: {why}. The program's lines are sampled from "
        f"inside instead. What helps: {cure}."
    )
    return replace(options, sample_hz=options.sample_hz or rate_hz)


def with_glance(options: Options) -> Options:
    """Return the options with half a minute of py-spy in them, where it is installed and nothing speaks against it.

    Whether the system lets it look is not tried here: that would make the program wait.
    """
    is_fit = options.monitors and not options.trial.steps and options.nsys is None and options.ncu is None
    tool = pyspy_tool.find() if is_fit else None
    return options if tool is None else replace(options, py_spy=tool, glance=True)


def of_running_job(
    options: Options, pid: int, rate_hz: float, native: bool, say: Callable[[str], None]
) -> Options:
    """Return the options with py-spy in them where it is installed and the system lets it look into that job.

    Where it is not, that is said, and the job is watched without stacks.
    """
    tool = pyspy_tool.find()
    if tool is None:
        say(f"perfwrap: no stacks, because py-spy is not installed. {pyspy_tool.INSTALL}")
        return options
    refused = pyspy_tool.refusal(tool, pid, native)
    if refused is not None:
        why, cure = refused
        say(
            f"perfwrap: no stacks, because py-spy may not look into process {pid}: {why}. What helps: {cure}."
        )
        return options
    return replace(options, py_spy=tool, py_spy_hz=rate_hz, py_spy_native=native)
