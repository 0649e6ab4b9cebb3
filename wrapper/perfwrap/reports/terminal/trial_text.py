"""A trial in a terminal: the result of each variant, the best one, the edit to make, and the predictions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath

from perfwrap import units
from perfwrap.experiments.judge import Row, best
from perfwrap.experiments.trial import BatchSize, Trial
from perfwrap.experiments.variants import KINDS
from perfwrap.experiments.written import Written
from perfwrap.reports.terminal.page import Page

COLUMNS = (8, 10, 9)
"""Widths for step, samples and loss; the ratio takes what it needs, and the result comes last."""
RATIO_HEADING = "mean, ratio"
MEMORY_COLUMNS, LAST_COLUMNS, MIN_NAME_COLUMNS = 9, 13, 10
MAX_FILES = 5
"""Files written by the program that are named; more are only counted."""
STYLES = {"gain": "bold green", "slower": "red", "noise": "dim"}
ADDED, REMOVED = "green", "red"


def draw(trial: Trial, rows: Sequence[Row], written: Written, page: Page) -> None:
    """Draw a trial onto the page; the first row is that of the baseline."""
    words = shlex.join([PurePath(trial.command[0]).name, *trial.command[1:]])
    page.line(("perfwrap try", "bold"), (f"  {page.fitted(words, page.width - 16)}", ""))
    if trial.interrupted:
        page.paragraph("Interrupted: these are the results so far.", style="yellow", indent=2)
    page.blank()
    _table(rows, page)
    _reasons(rows, page, is_search=trial.found is not None)
    page.blank()
    if trial.baseline.reading.status != "measured":
        page.paragraph(
            "The unchanged program could not be measured, so no change was tried.", style="bold red"
        )
    elif trial.found is not None:
        _batch_size(trial.found, page)
    elif not trial.planned:
        page.paragraph(
            "The diagnosis suggests no change to try. Name changes: perfwrap try workers=4 -- YOUR_COMMAND",
            style="bold",
        )
    else:
        _best(rows, page)
    _predictions(rows, page)
    draw_writes(max((row.skipped_writes for row in rows), default=0), written, page)
    page.paragraph(f"Runs and their output: {trial.folder}", style="dim")


def _table(rows: Sequence[Row], page: Page) -> None:
    """Draw the rows; names take what the other columns leave."""
    has_memory = any(row.peak_bytes is not None for row in rows)
    ratio_columns = 2 + max(len(text) for text in (RATIO_HEADING, *(_cells(row)[3] for row in rows)))
    others = sum(COLUMNS) + ratio_columns + (MEMORY_COLUMNS if has_memory else 0) + LAST_COLUMNS
    longest = max(len(row.name) for row in rows) + 1
    names = max(MIN_NAME_COLUMNS, min(longest, page.width - 2 - others))

    def draw_line(cells: Sequence[str], memory: str, word: str, style: str, word_style: str) -> None:
        name, step, per_second, found, loss = cells
        step_columns, rate_columns, loss_columns = COLUMNS
        text = f"{page.clipped(name, names - 1):<{names}}{step:>{step_columns}}{per_second:>{rate_columns}}"
        text += f"  {found:<{ratio_columns - 2}}" + (f"{memory:>{MEMORY_COLUMNS}}" if has_memory else "")
        page.line((f"{text}{loss:>{loss_columns - 1}} ", style), (word, word_style), indent=2)

    draw_line(("variant", "median", "samples/s", RATIO_HEADING, "loss"), "memory", "", "bold", "")
    for row in rows:
        memory = "" if row.peak_bytes is None else units.size(row.peak_bytes)
        draw_line(_cells(row), memory, _word(row), "", STYLES.get(row.judgement, ""))


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return the cells of a row: its name, step, samples, ratio and loss."""
    return (
        row.name,
        units.duration(row.median_ns, 3) if row.median_ns is not None else "",
        units.number(row.samples_per_s, 3) if row.samples_per_s else "",
        "" if row.ratio is None else units.ratio(row.ratio.value, row.ratio.low, row.ratio.high),
        units.number(row.loss, 3) if row.loss is not None else "",
    )


def _word(row: Row) -> str:
    """Return the result of a row in a word or two."""
    if row.status != "measured" or row.ratio is None:
        return "" if row.status == "measured" else row.status
    if row.judgement == "gain":
        return f"{units.times(1 / row.ratio.value)} faster"
    if row.judgement == "slower":
        return f"{units.times(row.ratio.value)} slower"
    return row.judgement


def _reasons(rows: Sequence[Row], page: Page, is_search: bool) -> None:
    """Draw why some variants were not measured, and cautions about others."""
    for row in rows:
        if row.reason and row.status != "measured":
            page.paragraph(f"{row.name}: {row.status}, {row.reason}.".replace("..", "."), indent=2)
        if row.loss_warning:
            page.paragraph(f"{row.name}: {row.loss_warning}.", style="yellow", indent=2)
        if row.judgement == "gain" and row.kind in KINDS and row.kind != "fix":
            page.paragraph(f"{row.name}: {KINDS[row.kind]}.", style="dim", indent=2)
        if row.left_out:
            page.paragraph(
                f"{row.name}: {units.counted(row.left_out, 'run')} not counted: far from the others, so something "
                "else used the machine.",
                indent=2,
            )
    if any(row.judgement == "not repeated" for row in rows) and not is_search:
        page.paragraph(
            "Nothing was repeated, so the noise between runs is unknown. To measure it: --repeats 2, or a longer "
            "--max-time",
            style="yellow",
            indent=2,
        )


def _best(rows: Sequence[Row], page: Page) -> None:
    """Draw the best fix and its edit."""
    found = best(rows)
    if found is None or found.ratio is None:
        others = [row for row in rows[1:] if row.judgement == "gain"]
        if others:
            names = ", ".join(row.name for row in others)
            page.paragraph(f"No fix was faster, but {names} was: see its edit.", style="bold")
            for row in others:
                _edit(row, page)
        elif any(row.judgement in ("noise", "slower") for row in rows):
            page.paragraph("No change was faster by more than the noise of this machine.", style="bold")
        return
    low, high = found.ratio.low or found.ratio.value, found.ratio.high or found.ratio.value
    page.paragraph(f"Best: {found.name}, {units.saving(low, high)}.", style="bold")
    _edit(found, page)


def _batch_size(found: BatchSize, page: Page) -> None:
    """Draw the largest batch size that fits."""
    if found.smallest is None:
        page.paragraph(f"Batch size {units.count(found.largest)} fits; {found.reason}.", style="bold")
        _fastest(found, page)
        return
    page.paragraph(
        f"Batch size {units.count(found.largest)} fits, {units.count(found.smallest)} does not ({found.reason}). Use "
        f"{units.count(found.advised)} at most, to keep memory free for longer samples and fragmentation.",
        style="bold",
    )
    _fastest(found, page)


def _fastest(found: BatchSize, page: Page) -> None:
    """Draw which size has the most samples per second."""
    if found.fastest is not None:
        page.paragraph(f"Most samples per second: batch size {units.count(found.fastest)}.")


def _edit(row: Row, page: Page) -> None:
    """Draw the edit to make; perfwrap does not make it."""
    if not row.edit.text:
        return
    place = f"; its paths are below {row.edit.root}" if row.edit.root not in ("", str(Path.cwd())) else ""
    page.paragraph(f"Edit for {row.name} (your files were not changed{place}):", indent=2)
    for line in row.edit.diff.splitlines():
        page.line((line, {"+": ADDED, "-": REMOVED}.get(line[:1], "")), indent=4)
    for text in row.edit.snippets:
        for line in text.splitlines():
            page.line((line, ""), indent=4)


def _predictions(rows: Sequence[Row], page: Page) -> None:
    """Draw how the measurements compare with the predictions of the rules."""
    for row in rows:
        if row.predicted is None or row.ratio is None:
            continue
        low, high = (units.ratio(end) for end in row.predicted)
        error = row.prediction_error or 0.0
        judged = "as" if not error else "faster than" if error < 0 else "slower than"
        outcome = f"{judged} predicted" if row.ratio.value < 1 else "no gain"
        page.paragraph(
            f"{row.name}: {row.rule} predicted a ratio of {low} to {high}, measured {units.ratio(row.ratio.value)} "
            f"({outcome}).",
            indent=2,
        )


def draw_writes(skipped: int, written: Written, page: Page) -> None:
    """Draw how many checkpoints each run suppressed, and which files the program wrote."""
    if skipped:
        page.paragraph(
            f"{units.counted(skipped, 'checkpoint')} per run suppressed: torch.save wrote nothing, so the step times "
            "exclude it (to write checkpoints: --allow-writes).",
            indent=2,
        )
    if written.changed:
        names = ", ".join(written.changed[:MAX_FILES])
        more = len(written.changed) - MAX_FILES
        page.paragraph(
            f"The program wrote or removed files in its working folder: {names}"
            + (f" and {units.count(more)} more." if more > 0 else "."),
            style="yellow",
            indent=2,
        )
    if written.unknown:
        page.paragraph(
            "The working folder has too many files to detect which of them the program wrote.", indent=2
        )
