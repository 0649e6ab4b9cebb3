"""Edit the program, prove that it is faster and computes the same, and write a patch."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from perfwrap import run_folder, units
from perfwrap.analysis import run_names
from perfwrap.commands.options import option_values
from perfwrap.commands.options import recording_options as record
from perfwrap.commands.options.option_values import warm_up as checked_warm_up
from perfwrap.commands.options.trial_options import (
    DEFAULT_STEPS,
    DEFAULT_TIMEOUT_S,
    INTERRUPTED,
    AllowWrites,
    Repeats,
    Timeout,
    WarmUp,
    check_command,
    let_signals_interrupt,
)
from perfwrap.commands.try_progress import TryProgress
from perfwrap.edits.files.patch_text import patch, root_of
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.trial import Trial, watched
from perfwrap.experiments.written import Written
from perfwrap.fixing.before_after import before_and_after
from perfwrap.fixing.search import MEMORY_FACTOR, Search
from perfwrap.reports import fix_document
from perfwrap.reports.html import fix_page
from perfwrap.reports.terminal import fix_text
from perfwrap.reports.terminal.page import Page
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id

NO_GAIN = 1
"""Exit code if no edit was proven."""
DEFAULT_MAX_TIME_S = 900.0
SAMPLE_HZ = 100.0
"""How often the stacks of the first run are sampled, which is only diagnosed."""

Only = Annotated[
    str,
    typer.Option(
        metavar="RULES", help="Only edits for these rules, e.g. slow_optimizer.", show_default=False
    ),
]
ListEdits = Annotated[bool, typer.Option("--list", help="Only show which edits there are; prove none.")]
Apply = Annotated[
    bool, typer.Option("--apply", help="Apply the patch to the files, if git shows no changes in them.")
]
AllowNumerics = Annotated[
    bool, typer.Option("--allow-numerics", help="Also keep edits that change the results of the training.")
]
MaxMemory = Annotated[
    float,
    typer.Option(
        metavar="FACTOR",
        min=1,
        help="Drop an edit whose peak memory is more than so many times that of the unchanged program, and more than "
        "1 GiB above it.",
    ),
]
MaxTime = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=1, help="Time for all runs; each edit is measured at least once."),
]
Steps = Annotated[int, typer.Option(metavar="N", min=5, help="Steady steps to measure in each run.")]
FixOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for the patch and all runs; must be new or empty.",
        show_default="perfwrap-runs/<UTC time>-fix-<name>",
    ),
]


def fix(
    command: record.Command = None,
    only: Only = "",
    list_edits: ListEdits = False,
    apply: Apply = False,
    allow_numerics: AllowNumerics = False,
    steps: Steps = DEFAULT_STEPS,
    warm_up: WarmUp = "auto",
    repeats: Repeats = None,
    max_time: MaxTime = DEFAULT_MAX_TIME_S,
    max_memory: MaxMemory = MEMORY_FACTOR,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    allow_writes: AllowWrites = False,
    out: FixOut = None,
) -> None:
    """Edit the program, prove that it is faster and computes the same.

    Writes a patch. The program runs with each edit in place of your files, which stay as they are. An edit is kept if
    the losses and parameters of the first steps are the same, and its steps are faster in turns with the unchanged
    program. Exit code 0: a patch with a proven gain; 1: none.
    """
    command = list(command or ())
    check_command(command, "perfwrap fix -- python train.py")
    rules = option_values.words(only)
    known = {rule_id(rule) for rule in RULES}
    unknown = [rule for rule in rules if rule not in known]
    if unknown:
        raise PerfwrapError(f"--only: there is no rule {unknown[0]!r}.", "List them with: perfwrap explain")
    settings = Settings(steps, checked_warm_up("--warm-up", warm_up), 0.02, timeout, allow_writes)
    folder = run_folder.create_parent(out, f"fix-{run_folder.stem(command)}")
    let_signals_interrupt()
    with TryProgress(sys.stderr) as progress:
        trial = Trial(command, folder, settings, progress, sample_hz=SAMPLE_HZ)
        written = watched(Path.cwd(), folder)
        search = Search(trial, allow_numerics, time.monotonic() + max_time, repeats, max_memory)
        try:
            if trial.start():
                found = search.find(rules)
                if list_edits:
                    _list(search, [one.sentence for one in found])
                    return
                if found:
                    progress.says(
                        "each edit is compared with the original and timed in turns with it, for about "
                        f"{units.duration(max_time * 1e9)} at most (--max-time)"
                    )
                search.run(found)
        except KeyboardInterrupt:
            trial.interrupted = True
    if not trial.runs or trial.baseline.reading.status == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if trial.baseline.reading.status != "measured":
        reading = trial.baseline.reading
        raise PerfwrapError(
            f"The unchanged program could not be measured: {reading.reason or reading.status}.",
            (
                "torch.save wrote nothing: if the program reads what it saved, pass --allow-writes. "
                if reading.skipped_writes
                else ""
            )
            + f"Its output: {trial.baseline.folder}",
        )
    _finish(search, written(), folder, apply)


def _list(search: Search, sentences: list[str]) -> None:
    """Print the edits that could be made."""
    page = Page(sys.stdout)
    fix_text.draw_list(sentences, search, page)
    page.show()


def _finish(search: Search, written: Written, folder: Path, apply: bool) -> None:
    """Write the patch and the documents, print the table, and exit."""
    text = patch(search.contents)
    path = folder / run_names.PATCH
    if text:
        path.write_bytes(text)
    root = root_of(file.path for file in search.contents) if search.contents else folder
    document = fix_document.section(search, written, text, root, before_and_after(search))
    fix_document.write(document, folder / run_names.FIX, folder / run_names.PULL_REQUEST)
    files = [
        (str(file.path.relative_to(root)), file.shown_text, replace(file, content=new).shown_text)
        for file, new in sorted(search.contents.items(), key=lambda pair: pair[0].path)
    ]
    fix_page.write(document, files, folder / run_names.FIX_PAGE)
    page = Page(sys.stdout)
    fix_text.draw(search, written, text, path, root, page)
    page.show()
    if text and apply:
        _apply(path, root)
    raise typer.Exit(0 if text else NO_GAIN)


def _apply(path: Path, root: Path) -> None:
    """Apply the patch with git; PerfwrapError if the work tree is not clean or there is none."""
    by_hand = (
        f"Apply it yourself: cd {shlex.quote(str(root))} && patch -p1 < {shlex.quote(str(path.resolve()))}"
    )
    status = _git(root, by_hand, "status", "--porcelain", "--untracked-files=no")
    if status.returncode != 0:
        raise PerfwrapError(f"{root} is not in a git work tree, so the patch was not applied.", by_hand)
    if status.stdout.strip():
        raise PerfwrapError(
            f"{root} has uncommitted changes, so the patch was not applied.",
            f"Commit or stash them, then: git apply {path.resolve()}",
        )
    applied = _git(root, by_hand, "apply", str(path.resolve()))
    if applied.returncode != 0:
        raise PerfwrapError(
            f"git apply failed, so no file was changed: {applied.stderr.strip()}",
            "If the files changed while perfwrap fix ran, run it again.",
        )
    page = Page(sys.stdout)
    page.paragraph(f"Applied to {root}. To undo it: git apply -R {path.resolve()}", style="bold")
    page.show()


def _git(root: Path, by_hand: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git in a folder; PerfwrapError if there is no git."""
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    except OSError as error:
        raise PerfwrapError(
            f"git cannot be run, so the patch was not applied: {error.strerror}.", by_hand
        ) from None
