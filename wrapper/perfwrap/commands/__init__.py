"""The commands, in the order of the help; a command's module is imported when the command is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

FREED_MEMORY = "_RJEM_MALLOC_CONF", "dirty_decay_ms:50,muzzy_decay_ms:0"
"""A variable that the allocator of polars reads when polars is imported: how long it keeps memory that is free. By
default that is a second, in which reading a large file needs a third more memory; the time is the same."""


@dataclass(frozen=True)
class Command:
    """One command. Its module holds a function of the module's own name, whose docstring begins with the summary."""

    name: str
    summary: str
    module: str = ""
    """The module in this package; empty if it has the command's name."""
    passes_through: bool = False
    """Whether it takes another program's command: what follows its first word is not parsed as options."""
    reads_much: bool = False
    """Whether it may read gigabytes. It must not start the user's program, which would inherit FREED_MEMORY."""

    def load(self) -> Callable[..., Any]:
        """Import the command's module and return the function of the command."""
        module = self.module or self.name
        if self.reads_much:
            os.environ.setdefault(*FREED_MEMORY)
        function: Callable[..., Any] = getattr(import_module(f"perfwrap.commands.{module}"), module)
        return function

    @property
    def settings(self) -> dict[str, Any]:
        """Return the context settings of the command for typer."""
        return {"allow_interspersed_args": False} if self.passes_through else {}


COMMANDS = (
    Command("run", "Run a command unchanged, record it, and report what slows it down.", passes_through=True),
    Command("try", "Measure what changes would bring, without editing the program.", "try_", True),
    Command("fix", "Edit the program, prove that it is faster and computes the same.", passes_through=True),
    Command(
        "inspect",
        "Show what each line of a step costs, and which work is wasted.",
        passes_through=True,
    ),
    Command("top", "Show a running job live in the terminal."),
    Command("attach", "Watch a job that is already running, without restarting it."),
    Command("report", "Print the report of a recorded run.", reads_much=True),
    Command("compare", "Compare runs: step time, findings and settings, with noise."),
    Command("check", "Compare a run with a baseline and fail on a regression (CI)."),
    Command("export", "Export to MLflow, W&B, TensorBoard, OTLP or Prometheus."),
    Command("open", "Open the report or the timeline of a run in a browser.", "open_"),
    Command("list", "List recorded runs and trials.", "list_"),
    Command("clean", "Delete old runs and trials."),
    Command("merge", "Merge run folders from several machines into one run."),
    Command(
        "import",
        "Diagnose files of other profilers, e.g. torch.profiler traces.",
        "import_",
        reads_much=True,
    ),
    Command("explain", "Explain a rule, or list all rules."),
    Command("doctor", "Check what perfwrap can record on this machine.", passes_through=True),
    Command("mcp", "Serve language-model agents (MCP) for the scripts of one folder.", "mcp_"),
    Command("skill", "Print a skill file for language-model agents."),
    Command("demo", "Profile a bundled slow script, fix it, and measure it again."),
)
