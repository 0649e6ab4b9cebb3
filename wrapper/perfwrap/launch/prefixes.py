"""Tools that start the command: Nsight Systems and Nsight Compute.

All have one interface, ``Prefix``; they write into ``tools/`` of the run folder.
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
"""Maximum length of the last output of a tool that is shown to the user."""

Run = Callable[[list[str]], int]
"""Runs a command of the tool and returns its wait status."""


class Prefix(Protocol):
    """One tool that starts the command."""

    @property
    def name(self) -> str:
        """Return the name of the tool's executable."""

    def examine(self, path: str, environment: Mapping[str, str]) -> list[str]:
        """Ask the tool at ``path`` what it can do; return what it lacks, in sentences.

        PerfwrapError if it lacks what it needs for any result.
        """

    def words(self, tools: Path) -> list[str]:
        """Return the words before the command; ``tools`` is the folder for the files of the tool."""

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the tool needs."""

    def finish(self, tools: Path, run: Run) -> list[str]:
        """Convert the output of the tool into readable files; return what went wrong, in sentences."""


def choose(
    options: Options, environment: Mapping[str, str], say: Callable[[str], None] | None = None
) -> Prefix | None:
    """Return the tool that the user requested; PerfwrapError if it is not installed or too old, or for two tools.

    ``say`` prints what the installed version lacks; without it the version is not examined.
    """
    if options.nsys is not None and options.ncu is not None:
        raise PerfwrapError(
            "--nsys and --ncu exclude each other: each needs the GPU counters for itself.",
            "Run with --nsys first; a later run with --ncu measures the slowest kernels of it.",
        )
    if options.nsys is None and options.ncu is None:
        return None
    tool: Prefix = (
        nsys.Nsys(options.nsys)
        if options.nsys is not None
        else ncu.Ncu(options.ncu or (), options.ncu_kernels)
    )
    path = process.find(tool.name, environment)
    if path is None:
        package, hint = (
            (nsys.PACKAGE, nsys.INSTALL) if tool.name == nsys.PROGRAM else (ncu.PACKAGE, ncu.INSTALL)
        )
        raise PerfwrapError(f"--{tool.name} needs {package}, but {tool.name} is not on PATH.", hint)
    if say is not None:
        for problem in tool.examine(path, environment):
            say(f"perfwrap: {problem}")
    return tool


def place(folder: RunFolder) -> Path:
    """Return the folder of the tools, created at the first call."""
    tools = folder.path / TOOLS
    tools.mkdir(mode=0o700, exist_ok=True)
    return tools


def last_words(log: Path) -> str:
    """Return the last line that a tool printed, as the end of a sentence; empty if it printed none."""
    try:
        lines = [
            line.strip()
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            if line.strip()
        ]
    except OSError:
        return ""
    return f" ({lines[-1][:LONGEST_WORDS]})" if lines else ""
