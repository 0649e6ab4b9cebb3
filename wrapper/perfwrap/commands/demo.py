"""Profile a bundled slow training script, have `perfwrap fix` write a proven patch, apply it, and measure again."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
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

FAST = ("--steps", "40", "--max-time", "180")
"""Options of ``perfwrap fix`` for a gain that is large and steps that are alike: two repeats where the machine is
steady, more where it is not."""
SCRIPT = Path(__file__).resolve().parent.parent / "demo" / "train_digits.py"
NEEDS = {"torch": "torch", "sklearn": "scikit-learn"}
"""Packages of the script, by the module that it imports."""
BUSY = "other programs may use the cores. Run the demo again when they are free."
"""Why the demo ends early."""
FINDS = "import sys, importlib.util as u; print(*(name for name in sys.argv[1:] if u.find_spec(name)))"
"""A program that prints which of the modules that it is given are installed."""


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

    Takes about one and a half minutes on two CPU cores, up to four minutes where other programs use them. Needs no GPU
    and no download. The script runs in perfwrap's environment or, if PyTorch is not there, with the `python` of the
    activated one.
    """
    python = find_python()
    folder = run_folder.create_parent(out, "demo").resolve()
    script = folder / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    say(f"$ cd {shlex.quote(str(folder))}")
    slow = _profile(python, script, folder / "slow", "1 of 3: a slow training script")
    edit = _advised(folder / "slow")
    if edit is None:
        say(f"The diagnosis advises no edit: {BUSY}")
        return
    fix = _fixed(python, script, folder / "fix", edit.rule)
    if fix is None:
        say(f"No edit is proven to gain: {BUSY}")
        return
    fixed = _profile(python, script, folder / "fixed", "3 of 3: the script with the patch")
    print_difference(slow, fixed, fix, folder)
    say("")
    say("On your own script: `perfwrap fix -- python train.py`. What each line costs:")
    say("`perfwrap inspect -- python train.py`.")


def find_python() -> str:
    """Return a Python that has the packages of the script."""
    pythons = [sys.executable, *filter(None, (shutil.which("python"), shutil.which("python3")))]
    missing = {python: _missing(python) for python in dict.fromkeys(pythons)}
    for python, packages in missing.items():
        if not packages:
            return python
    closest = min(missing, key=lambda each: len(missing[each]))
    raise PerfwrapError(
        f"The demo trains a small network; {closest} lacks {' and '.join(missing[closest])}.",
        "Activate the environment of a training, with scikit-learn in it, or install both beside perfwrap: "
        "pip install 'perfwrap[demo]', in a clone: pip install -c constraints.txt -e '.[demo]'",
    )


def _missing(python: str) -> list[str]:
    """Return the packages of the script that an interpreter lacks; all of them if it does not start."""
    asked = subprocess.run([python, "-c", FINDS, *NEEDS], capture_output=True, text=True)
    found = asked.stdout.split()
    return [package for module, package in NEEDS.items() if module not in found]


def _advised(run: Path) -> Candidate | None:
    """Return the first edit that the diagnosis leads to, if there is one; whether it gains is proven later."""
    found, _ = candidates.find(diagnosed(run).findings, [], ())
    return found[0] if found else None


def _fixed(python: str, script: Path, out: Path, rule: str) -> dict[str, Any] | None:
    """Run ``perfwrap fix`` for a rule and apply its patch; return its document, None if there is no patch."""
    words = ["fix", "--only", rule, *FAST]
    say("")
    say("── 2 of 3: an edit of it, its proof, and the patch ──")
    say(f"$ perfwrap {' '.join(words)} -- python {script.name}")
    say("")
    command = [sys.executable, "-m", "perfwrap", *words, "--out", str(out), "--", python, script.name]
    status = subprocess.run(command, cwd=script.parent).returncode
    if status == NO_GAIN:
        return None
    document = out / run_names.FIX
    if status != 0 or not document.is_file():
        raise PerfwrapError(
            f"perfwrap fix failed with exit code {status}.", f"See its output above. Its runs: {out}"
        )
    patch = (out / run_names.PATCH).resolve()
    applied = ["git", "apply", str(patch)] if shutil.which("git") else ["patch", "-p1", "-i", str(patch)]
    say(f"$ {shlex.join(applied)}")
    found: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))
    try:
        subprocess.run(applied, cwd=found["root"], check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PerfwrapError(f"The patch could not be applied: {error}.", "Install git or patch.") from None
    return found


def _profile(python: str, script: Path, out: Path, title: str) -> dict[str, Any]:
    """Run one script as a user would, with its output and report, and return its diagnosis."""
    for line in ("", f"── {title} ──", f"$ perfwrap run -- python {script.name}", ""):
        say(line)
    # From the folder of the script, so that the report has short names and its next command works as shown.
    command = [sys.executable, "-m", "perfwrap", "run", "--out", str(out), "--", python, script.name]
    status = subprocess.run(command, cwd=script.parent).returncode
    diagnosis = out / run_folder.DIAGNOSIS
    if status != 0 or not diagnosis.is_file():
        raise PerfwrapError(
            f"The demo script failed with exit code {status} or wrote no diagnosis.",
            f"See its output above, or check this machine: perfwrap doctor. Run folder: {out}",
        )
    result: dict[str, Any] = json.loads(diagnosis.read_text(encoding="utf-8"))
    return result
