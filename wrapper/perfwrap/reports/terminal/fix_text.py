"""What `perfwrap fix` tried, in a terminal: the edits with their proof, and the patch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath

from perfwrap import units
from perfwrap.experiments.judge import Row
from perfwrap.experiments.written import Written
from perfwrap.fixing.candidates import MIN_GAIN, Unedited
from perfwrap.fixing.equality import WORDS
from perfwrap.fixing.search import Search, Tried
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.terminal.trial_text import draw_writes
from perfwrap.timeline.notebook_cells import at_line

ADDED, REMOVED = "green", "red"
MORE_STEPS = 300
"""Steps that are suggested where a shorter run led to no edit."""
STATES = {"kept": "bold green", "dropped": "dim"}


def draw(search: Search, written: Written, patch: bytes, path: Path, root: Path, page: Page) -> None:
    """Draw the results onto the page; ``path`` is the patch, to be applied in ``root``."""
    command = search.trial.command
    words = shlex.join([PurePath(command[0]).name, *command[1:]])
    page.line(("perfwrap fix", "bold"), (f"  {page.fitted(words, page.width - 16)}", ""))
    if search.trial.interrupted:
        page.paragraph("Interrupted: these are the results so far.", style="yellow", indent=2)
    for one in search.tried:
        page.blank()
        _edit(one, page)
    _unedited(search.unedited, page)
    draw_writes(max(run.reading.skipped_writes for run in search.trial.runs), written, page)
    page.blank()
    if not patch:
        if search.tried:
            page.paragraph(
                "No edit is proven to make this program faster, so there is no patch.", style="bold"
            )
        else:
            _no_edit(search, page, " There is no patch.")
        if search.unchecked:
            page.paragraph(f"Not checked: {', '.join(search.unchecked)}.")
        page.paragraph(f"Runs and fix.html: {search.trial.folder}", style="dim")
        return
    page.paragraph(f"Together: {_ratio(search.total)}.", style="bold")
    for line in patch.decode("utf-8", "replace").splitlines():
        page.line((line, {"+": ADDED, "-": REMOVED}.get(line[:1], "")), indent=2)
    page.blank()
    place = "" if root == Path.cwd() else f"cd {shlex.quote(str(root))} && "
    page.paragraph(
        f"Your files were not changed. To apply: {place}git apply {shlex.quote(str(path.resolve()))}"
    )
    page.paragraph(f"Runs, fix.html, fix.json and pull-request.md: {search.trial.folder}", style="dim")


def draw_list(sentences: Sequence[str], search: Search, page: Page) -> None:
    """Draw the edits that could be tried."""
    if not sentences:
        _no_edit(search, page)
    for number, sentence in enumerate(sentences, 1):
        page.paragraph(sentence, hanging=f"{number}. ")
    _unedited(search.unedited, page)


def _no_edit(search: Search, page: Page, ending: str = "") -> None:
    """Draw why there is no edit to try, what follows, and how more is found."""
    count = int(search.trial.baseline.reading.steps.number.size)
    page.paragraph(f"{_nothing(search.unedited, count)}{ending}", style="bold")
    if count < MORE_STEPS:
        page.paragraph(
            f"Some findings need two epochs, and edits need findings: perfwrap fix --steps {MORE_STEPS} "
            "records more."
        )


def _edit(one: Tried, page: Page) -> None:
    """Draw one edit: what it changes, whether results are the same, and its step time."""
    place = one.candidate.place
    where = at_line(Path(place.file).name, place.line)
    page.line((f"{one.state:<8}", STATES[one.state]), (f" {where}  {one.candidate.rule}", ""))
    page.paragraph(one.candidate.sentence, indent=9)
    results = WORDS[one.equality]
    if one.equality in ("rounding", "other random numbers", "changes the training"):
        results += f", deviation up to {units.number(one.deviation, 2)}"
    if one.row is not None and one.row.ratio is not None:
        low, high = (units.ratio(end) for end in one.candidate.predicted)
        predicted = f"; predicted {low} to {high}" if one.candidate.predicted[0] < 1 else ""
        page.paragraph(f"Results: {results}. Step time: {_ratio(one.row)}{predicted}.", indent=9)
    elif one.equality != "unknown":
        page.paragraph(f"Results: {results}.", indent=9)
    if one.reason:
        reason = one.reason.rstrip(".")
        page.paragraph(f"{reason[:1].upper()}{reason[1:]}.", indent=9)


def _ratio(row: Row | None) -> str:
    """Return a measured ratio of step times, and the speedup."""
    if row is None or row.ratio is None:
        return "not measured"
    found = row.ratio
    return f"{units.ratio(found.value, found.low, found.high)} of the original's"


def _nothing(unedited: Sequence[Unedited], steps: int) -> str:
    """Return why nothing was tried: there is no edit for what was found, or there is nothing to gain."""
    shown = units.counted(steps, "steady step")
    if any(one.gains for one in unedited):
        return f"No edit could be made for what {shown} showed."
    return f"Nothing to gain: in {shown}, no finding predicts that a step can take {units.share(MIN_GAIN)} less time."


def _unedited(unedited: Sequence[Unedited], page: Page) -> None:
    """Draw why the other findings have no edit."""
    if unedited:
        page.blank()
    for one in unedited:
        page.paragraph(one.sentence, style="" if one.gains else "dim", indent=2)
