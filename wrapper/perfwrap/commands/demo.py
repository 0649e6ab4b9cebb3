"""Profile a bundled slow training script and its fixed version, and compare them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.reports.terminal.difference import print_difference
from perfwrap.shown_text import say

SCRIPTS = Path(__file__).resolve().parent.parent / "demo"
NEEDS = {"torch": "torch", "sklearn": "scikit-learn"}


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for both runs; must be new or empty.",
            show_default="perfwrap-runs/<UTC time>-demo",
        ),
    ] = None,
) -> None:
    """Profile a bundled slow training script and its fixed version.

    Takes less than two minutes on two CPU cores. Needs no GPU and no download.
    """
    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise PerfwrapError(
            f"The demo trains a small network and needs {' and '.join(missing)} in this environment.",
            "Install with: pip install 'perfwrap[demo]', or in a clone: pip install -c constraints.txt -e '.[demo]'",
        )
    folder = run_folder.create_parent(out, "demo")
    slow = _profile(SCRIPTS / "train_digits.py", folder / "slow", "A slow training script")
    fixed = _profile(
        SCRIPTS / "train_digits_fixed.py", folder / "fixed", "The same script with the suggested fix"
    )
    print_difference(slow, fixed, folder)


def _profile(script: Path, out: Path, title: str) -> dict[str, Any]:
    """Run one script as a user would, with its output and report, and return its diagnosis."""
    command = ["run", "--out", str(out), "--", "python", str(script)]
    for line in ("", f"── {title} ──", f"$ perfwrap run -- python {script.name}", ""):
        say(line)
    command[command.index("python")] = sys.executable
    status = subprocess.run([sys.executable, "-m", "perfwrap", *command]).returncode
    diagnosis = out / run_folder.DIAGNOSIS
    if status != 0 or not diagnosis.is_file():
        raise PerfwrapError(
            f"The demo script failed with exit code {status} or wrote no diagnosis.",
            f"See its output above, or check this machine: perfwrap doctor. Run folder: {out}",
        )
    result: dict[str, Any] = json.loads(diagnosis.read_text(encoding="utf-8"))
    return result
