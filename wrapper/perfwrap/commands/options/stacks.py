"""Settles, before anything runs, who samples stacks: py-spy, or the recorder where py-spy may not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from perfwrap.errors import PerfwrapError
from perfwrap.launch import descriptors, kernel
from perfwrap.launch.options import Options
from perfwrap.monitors.pyspy import pyspy_tool


def find_py_spy() -> str:
    """Return the py-spy to use; PerfwrapError if it is not installed."""
    tool = pyspy_tool.find()
    if tool is None:
        raise PerfwrapError("py-spy is not installed.", pyspy_tool.INSTALL)
    return tool


def with_py_spy(options: Options, rate_hz: float, native: bool, say: Callable[[str], None]) -> Options:
    """Return the options with py-spy, or with the recorder's own sampler if the system does not permit py-spy.

    Whether it does is tried on this process. PerfwrapError if py-spy is not installed or the monitors are off.
    """
    if not options.monitors:
        raise PerfwrapError(
            "--py-spy and --no-monitors exclude each other: py-spy is a monitor.",
            "Omit --no-monitors, or sample with --sample 20.",
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
        f"perfwrap: py-spy is not permitted to read other processes: {why}. Stacks are sampled inside the program "
        f"instead. To permit it: {cure}."
    )
    return replace(options, sample_hz=options.sample_hz or rate_hz)


def with_light_sampling(options: Options) -> Options:
    """Return the options with light sampling by py-spy, if it is installed and no other option excludes it.

    Whether the system permits it is not tried here, because the program would have to wait.
    """
    is_fit = options.monitors and not options.trial.steps and options.nsys is None and options.ncu is None
    tool = pyspy_tool.find() if is_fit else None
    return options if tool is None else replace(options, py_spy=tool, light_sampling=True)


def of_running_job(
    options: Options, pid: int, rate_hz: float, native: bool, say: Callable[[str], None]
) -> Options:
    """Return the options with py-spy, if it is installed and the system permits it to read that job.

    Otherwise print why, and watch the job without stacks.
    """
    tool = pyspy_tool.find()
    if tool is None:
        say(f"perfwrap: no stacks, because py-spy is not installed. {pyspy_tool.INSTALL}")
        return options
    refused = pyspy_tool.refusal(tool, pid, native)
    if refused is not None:
        why, cure = refused
        say(
            f"perfwrap: no stacks, because py-spy is not permitted to read process {pid}: {why}. To permit it: {cure}."
        )
        return options
    return replace(options, py_spy=tool, py_spy_hz=rate_hz, py_spy_native=native)
