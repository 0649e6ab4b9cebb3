"""Profile a bundled slow training script, make the edit that the diagnosis advises, and measure it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import run_folder
from perfwrap.commands.run_report import diagnosed
from perfwrap.edits.outcome import Refusal
from perfwrap.edits.patch_text import patch
from perfwrap.errors import PerfwrapError
from perfwrap.fixing import candidates, edited_program
from perfwrap.fixing.candidates import Candidate
from perfwrap.reports.terminal.difference import print_difference
from perfwrap.rules.model import MIN_REPORTED_SHARE
from perfwrap.shown_text import say

SCRIPT = Path(__file__).resolve().parent.parent / "demo" / "train_digits.py"
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
    """Profile a bundled slow script, and measure the advised edit.

    Takes less than two minutes on two CPU cores. Needs no GPU and no download.
    """
    missing = [package for module, package in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise PerfwrapError(
            f"The demo trains a small network and needs {' and '.join(missing)} in this environment.",
            "Install with: pip install 'perfwrap[demo]', or in a clone: pip install -c constraints.txt -e '.[demo]'",
        )
    folder = run_folder.create_parent(out, "demo")
    script = folder / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    slow = _profile(script, folder / "slow", "1 of 2: a slow training script")
    edit = _advised(folder / "slow")
    if edit is None:
        say("The diagnosis advises no edit on this machine whose gain is certain: its cores may be busy.")
        return
    edited, text = _edited(edit, folder)
    say("")
    say("── The advised edit ──")
    for line in text.splitlines()[1:]:
        say(line)
    fixed = _profile(edited, folder / "fixed", "2 of 2: the same script with this edit")
    print_difference(slow, fixed, edit.predicted, folder)
    say("")
    say("On your own script, `perfwrap fix -- python train.py` makes such an edit and proves it, and")
    say("`perfwrap inspect -- python train.py` shows the cost of each line.")


def _advised(run: Path) -> Candidate | None:
    """Return the first edit that the diagnosis leads to and whose whole predicted range is a gain, if there is one."""
    found, _ = candidates.find(diagnosed(run).findings, [], ())
    return next((one for one in found if one.predicted[1] <= 1.0 - MIN_REPORTED_SHARE), None)


def _edited(edit: Candidate, folder: Path) -> tuple[Path, str]:
    """Write the edited script next to the original, and return it with the diff."""
    try:
        contents = edited_program.make([edit])
    except Refusal as refusal:
        raise PerfwrapError(
            f"The advised edit was not possible: {refusal.reason}", "Read the report of the first run above."
        ) from None
    ((_, content),) = contents.items()
    edited = folder / f"{SCRIPT.stem}_fixed.py"
    edited.write_bytes(content)
    return edited, patch(contents).decode("utf-8")


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
