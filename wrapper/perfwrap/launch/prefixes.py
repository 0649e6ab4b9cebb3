"""Tools that stand before the command and start it: Nsight Systems and Nsight Compute.

All of them are driven through one interface, ``Prefix``; what they write stands in the run folder's ``tools/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from perfwrap.errors import PerfwrapError
from perfwrap.launch import ncu, nsys, process
from perfwrap.launch.options import Options
from perfwrap.run_folder import TOOLS, RunFolder

LONGEST_WORDS = 300
"""Characters of what a tool printed last that are passed on to the user."""

Run = Callable[[list[str]], int]
"""Runs a command of the tool's and returns its wait status."""


class Prefix(Protocol):
    """One tool that stands before the command."""

    @property
    def name(self) -> str:
        """Return the tool's name, as it is called."""

    def words(self, tools: Path) -> list[str]:
        """Return what stands before the command; ``tools`` is where to write."""

    def variables(self) -> dict[str, str]:
        """Return what the tool needs in its environment."""

    def finish(self, tools: Path, run: Run) -> list[str]:
        """Make what was written into what is read; return what went wrong, in sentences."""


def choose(options: Options, environment: Mapping[str, str]) -> Prefix | None:
    """Return the tool that the user asked for; PerfwrapError when it is not installed, or two are asked for."""
    if options.nsys is not None and options.ncu is not None:
        raise PerfwrapError(
            "--nsys and --ncu cannot watch the same run: each needs the GPU's counters for itself.",
            "Run with --nsys first; a run with --ncu then measures the kernels that took longest.",
        )
    if options.nsys is None and options.ncu is None:
        return None
    tool: Prefix = (
        nsys.Nsys(options.nsys)
        if options.nsys is not None
        else ncu.Ncu(options.ncu or (), options.ncu_kernels)
    )
    if process.find(tool.name, environment) is None:
        package, hint = (
            (nsys.PACKAGE, nsys.INSTALL) if tool.name == nsys.PROGRAM else (ncu.PACKAGE, ncu.INSTALL)
        )
        raise PerfwrapError(f"--{tool.name} needs {package}, and there is no {tool.name} on PATH.", hint)
    return tool


def place(folder: RunFolder) -> Path:
    """Return where tools write, made at the first question."""
    tools = folder.path / TOOLS
    tools.mkdir(mode=0o700, exist_ok=True)
    return tools


def last_words(log: Path) -> str:
    """Return the last line that a tool printed, as the end of a sentence; empty where it printed none."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f" ({lines[-1][:LONGEST_WORDS]})" if lines else ""
