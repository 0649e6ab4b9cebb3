"""What the installed version of a tool can do, from its own help: options come and go with its versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PATIENCE_SECONDS = 30.0
"""A tool on a slow network drive takes some seconds to start; without an answer, its documented options are used."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
VERSION = re.compile(r"\b\d{4}\.\d+(?:\.\d+)*")


@dataclass(frozen=True)
class ToolHelp:
    """The version that a tool prints, and the options in its help; empty if unknown."""

    version: str = ""
    options: frozenset[str] = frozenset()

    def lacks(self, options: Iterable[str]) -> list[str]:
        """Return the options that the installed version does not have; none if its help is unknown."""
        return [option for option in options if self.options and option not in self.options]

    def has(self, option: str) -> bool:
        """Return whether the help names an option."""
        return option in self.options


def ask(program: str, words: list[str], environment: Mapping[str, str]) -> ToolHelp:
    """Return what ``program`` says about itself; ``words`` are the arguments that print its options."""
    return ToolHelp(
        next(iter(VERSION.findall(answer(program, ["--version"], environment))), ""),
        frozenset(OPTION.findall(answer(program, words, environment))),
    )


def answer(program: str, words: list[str], environment: Mapping[str, str]) -> str:
    """Return what a program prints; empty if it fails, or takes too long."""
    import subprocess  # every launcher imports this file, and hardly any starts such a tool

    try:
        done = subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""
