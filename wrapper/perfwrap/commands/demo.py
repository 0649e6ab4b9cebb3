"""Profile a bundled, unmodified, slow training script, then its mended twin, and show the difference."""

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
from perfwrap.shown_text import say

SCRIPTS = Path(__file__).resolve().parent.parent / "demo"
NEEDS = {"torch": "torch", "sklearn": "scikit-learn"}


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Keep both runs in this new folder.", show_default=False)
    ] = None,
) -> None:
    """Profile a bundled, unmodified, slow training script, then its mended twin, and show the difference.

    Takes under two minutes on two cores and needs no GPU and no download.
    """
    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise PerfwrapError(
            f"The demo trains a real network and needs {' and '.join(missing)} in this environment.",
            "pip install -c constraints.txt -e '.[demo]' in a clone, or pip install 'perfwrap[demo]'.",
        )
    folder = run_folder.create_parent(out, "demo")
    slow = _profile(SCRIPTS / "train_digits.py", folder / "slow", "An ordinary script, as it is")
    fixed = _profile(
        SCRIPTS / "train_digits_fixed.py", folder / "fixed", "The same script, mended as advised"
    )
    _print_difference(slow, fixed, folder)


def _profile(script: Path, out: Path, title: str) -> dict[str, Any]:
    """Run one script as a user would, its output and report shown, and return its diagnosis."""
    command = ["run", "--out", str(out), "--", "python", str(script)]
    for line in ("", f"── {title} ──", f"$ perfwrap run -- python {script.name}", ""):
        say(line)
    command[command.index("python")] = sys.executable
    status = subprocess.run([sys.executable, "-m", "perfwrap", *command]).returncode
    diagnosis = out / run_folder.DIAGNOSIS
    if status != 0 or not diagnosis.is_file():
        raise PerfwrapError(
            f"The demo's script ended with status {status} and left no diagnosis.",
            f"Look at its output above; `perfwrap doctor` says what can be recorded here. Run folder: {out}",
        )
    result: dict[str, Any] = json.loads(diagnosis.read_text(encoding="utf-8"))
    return result


def _print_difference(slow: dict[str, Any], fixed: dict[str, Any], folder: Path) -> None:
    """Print what the mending was worth, beside what had been predicted."""
    # Read only here: the recording half must start fast and without the libraries of reports.
    from perfwrap.reports.difference import print_difference

    print_difference(slow, fixed, folder)
