"""The labelled workloads: their labels, their commands, and their fixed twins (see scripts/workloads/README.md)."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
HEALTHY = "healthy"
HELD_OUT = "# held out"
LABEL_LINES = 4
"""The label is among this many first lines."""
TWIN = "# twin: healthy"
"""The head line of a script whose fixed twin is a healthy workload."""
RUN, HEAD_LINES = "# run:", 6
"""The prefix of the head line with the command of a script, and the number of first lines it is among."""
FIXED = re.compile(r"^( *)# fixed: (.*)$")


@dataclass(frozen=True)
class Label:
    """The finding that a script must have, its lines, and other findings that are true."""

    expected: str
    lines: frozenset[int]
    also: frozenset[str]
    held_out: bool = False
    """Whether no rule was ever tuned on it."""


def workloads(folder: Path, source: Path = WORKLOADS) -> list[Path]:
    """Return all labelled scripts of the source by name. The healthy twins are written into the folder."""
    scripts = sorted(source.glob("*.py"))
    twins = []
    for script in scripts:
        text = healthy_twin(script.read_text(encoding="utf-8"))
        if text is not None:
            twins.append(folder / f"{HEALTHY}_{script.name}")
            twins[-1].write_text(text, encoding="utf-8")
    return sorted([*scripts, *twins], key=lambda script: script.name)


def healthy_twin(text: str) -> str | None:
    """Return the fixed twin of a script with the label of a healthy one; None if it has no such twin."""
    lines = text.split("\n")
    if TWIN not in lines[:LABEL_LINES]:
        return None
    planted = ("# expect:", "# also:", TWIN)
    head = [line for line in lines[:LABEL_LINES] if not line.startswith(planted)]
    return fixed_source("\n".join([f"# expect: {HEALTHY}", *head, *lines[LABEL_LINES:]]))


def fixed_source(text: str) -> str | None:
    """Return a script with each line before a ``# fixed:`` comment replaced by the comment; None if there is none."""
    lines: list[str] = []
    found = False
    for line in text.split("\n"):
        fix = FIXED.match(line)
        if fix:
            lines[-1] = fix[1] + fix[2]
            found = True
        else:
            lines.append(line)
    return "\n".join(lines) if found else None


def read_label(script: Path) -> Label:
    """Read the comment lines at the head of a script."""
    lines = script.read_text(encoding="utf-8").splitlines()
    held_out = HELD_OUT in lines[:LABEL_LINES]
    head = dict(
        line[2:].split(":", 1) for line in lines[:LABEL_LINES] if line.startswith("# ") and ":" in line
    )
    words = head["expect"].split()
    marked = frozenset(number for number, line in enumerate(lines, 1) if line.rstrip().endswith("# guilty"))
    named = marked if "line" in words else frozenset()
    return Label(words[0], named, frozenset(head.get("also", "").split()), held_out)


def launcher_of(script: Path) -> list[str]:
    """Return the words of the head line ``# run: torchrun …``: the command that starts the script, if not Python."""
    lines = script.read_text(encoding="utf-8").splitlines()[:HEAD_LINES]
    words = next((line.removeprefix(RUN).split() for line in lines if line.startswith(RUN)), [])
    if words[:1] == ["torchrun"]:
        words[:1] = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--master-port",
            str(20_000 + os.getpid() % 20_000),
        ]
    return words


def run_options(script: Path) -> list[str]:
    """Return the options of ``perfwrap run`` in a script's head, which its problem needs."""
    head = script.read_text(encoding="utf-8").splitlines()[:LABEL_LINES]
    return next((line.split(":", 1)[1].split() for line in head if line.startswith("# options:")), [])
