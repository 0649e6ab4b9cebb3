"""Profile a bundled slow training script, have `perfwrap fix` write a proven patch, apply it, and measure again."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import run_folder
from perfwrap.analysis import run_names
from perfwrap.commands.fix import NO_GAIN
from perfwrap.commands.run_report import diagnosed
from perfwrap.errors import PerfwrapError
from perfwrap.fixing import candidates
from perfwrap.fixing.candidates import Candidate
from perfwrap.reports.terminal.difference import print_difference
from perfwrap.shown_text import say

FAST = ("--steps", "40", "--repeats", "3")
"""Options of ``perfwrap fix`` for a gain that is large and steps that are alike."""
SCRIPT = Path(__file__).resolve().parent.parent / "demo" / "train_digits.py"
NEEDS = {"torch": "torch", "sklearn": "scikit-learn"}


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for all runs; must be new or empty.",
            show_default="perfwrap-runs/<UTC time>-demo",
        ),
    ] = None,
) -> None:
    """Profile a bundled slow script, fix it, and measure it again.

    Takes about one and a half minutes on two CPU cores. Needs no GPU and no download.
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
    slow = _profile(script, folder / "slow", "1 of 3: a slow training script")
    edit = _advised(folder / "slow")
    if edit is None:
        say("The diagnosis advises no edit on this machine: its cores may be busy.")
        return
    if not _fixed(script, folder / "fix", edit.rule):
        say("No edit is proven to gain on this machine: its cores may be busy.")
        return
    fixed = _profile(script, folder / "fixed", "3 of 3: the script with the patch")
    print_difference(slow, fixed, edit.predicted, folder)
    say("")
    say("On your own script: `perfwrap fix -- python train.py`. What each line costs:")
    say("`perfwrap inspect -- python train.py`.")


def _advised(run: Path) -> Candidate | None:
    """Return the first edit that the diagnosis leads to, if there is one; whether it gains is proven later."""
    found, _ = candidates.find(diagnosed(run).findings, [], ())
    return found[0] if found else None


def _fixed(script: Path, out: Path, rule: str) -> bool:
    """Run ``perfwrap fix`` for a rule and apply its patch; return whether there was one."""
    words = ["fix", "--only", rule, *FAST]
    say("")
    say("── 2 of 3: an edit of it, its proof, and the patch ──")
    say(f"$ perfwrap {' '.join(words)} -- python {script.name}")
    say("")
    command = [sys.executable, "-m", "perfwrap", *words, "--out", str(out), "--", sys.executable, script.name]
    status = subprocess.run(command, cwd=script.parent).returncode
    if status == NO_GAIN:
        return False
    document = out / run_names.FIX
    if status != 0 or not document.is_file():
        raise PerfwrapError(
            f"perfwrap fix failed with exit code {status}.", f"See its output above. Its runs: {out}"
        )
    patch = (out / run_names.PATCH).resolve()
    applied = ["git", "apply", str(patch)] if shutil.which("git") else ["patch", "-p1", "-i", str(patch)]
    say(f"$ {shlex.join(applied)}")
    root = json.loads(document.read_text(encoding="utf-8"))["root"]
    try:
        subprocess.run(applied, cwd=root, check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PerfwrapError(f"The patch could not be applied: {error}.", "Install git or patch.") from None
    return True


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
