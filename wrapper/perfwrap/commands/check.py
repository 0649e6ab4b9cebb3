"""Hold a run against a baseline, for continuous integration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfwrap.commands import runs
from perfwrap.commands.output_options import Allow, Format, Run, allowed, chosen, put
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import why_not, write_plain

if TYPE_CHECKING:
    from perfwrap.compare.comparison import Comparison
    from perfwrap.compare.judgement import Judgement

FORMATS = ("terminal", "json", "markdown", "github")

EXIT_CODES = {"ok": 0, "regression": 10, "not comparable": 11, "too noisy": 12}
"""How `perfwrap check` ends; 2 is a mistake in its use, as everywhere. None of them is a usual code of a program."""


def check(
    run: Run,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="The run to hold it against, or its diagnosis.json; several with commas between them.",
            autocompletion=runs.complete,
        ),
    ],
    max_regression: Annotated[
        str, typer.Option(metavar="PERCENT", help="How much longer a step may take.")
    ] = "5%",
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 12 where the runs are too noisy for that limit.")
    ] = False,
    allow: Allow = "",
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the answer as JUnit's XML, too.", show_default=False),
    ] = None,
    format: Format = "terminal",
) -> None:
    """Hold a run against a baseline, for continuous integration.

    Is a step too much slower than the baseline's, and not by noise alone? Ends with 0 when it is not, 10 when it is, 11
    when the runs are not comparable, and with --strict 12 when they are too noisy to see a regression of that size.
    Several runs of either, with commas between them, tell how much runs differ: RUN1,RUN2 --baseline A,B,C.
    --format github writes an annotation and, where GITHUB_STEP_SUMMARY names a file, the summary of the job.
    """
    form, meant, limit = chosen(format, FORMATS), allowed(allow), _limit(max_regression)
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.compare.comparison import compare
    from perfwrap.compare.judgement import judge
    from perfwrap.reports import junit as junit_report

    comparison = compare(runs.side(baseline), runs.side(run), meant)
    judgement = judge(comparison, limit)
    if junit is not None:
        try:
            write_plain(junit, junit_report.text(comparison, judgement, strict))
        except OSError as error:
            raise PerfwrapError(
                f"{junit} cannot be written: {why_not(error)}.", "Choose another --junit FILE."
            ) from error
    _show(form, comparison, judgement)
    if judgement.state != "too noisy" or strict:
        raise typer.Exit(EXIT_CODES[judgement.state])


def _limit(percent: str) -> float:
    """Return the share that a percentage is; PerfwrapError for anything else."""
    try:
        limit = float(percent.strip().removesuffix("%")) / 100
    except ValueError:
        limit = -1.0
    if not 0 <= limit <= 100:
        raise PerfwrapError(
            f"--max-regression {percent!r} is no percentage.", "For example: --max-regression 5%"
        )
    return limit


def _show(form: str, comparison: Comparison, judgement: Judgement) -> None:
    """Write the answer as it was asked for."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import comparison as drawing
    from perfwrap.reports import comparison_json, comparison_markdown, workflow
    from perfwrap.reports.json import dumped
    from perfwrap.reports.page import Page

    markdown = comparison_markdown.text(comparison, judgement)
    if form == "json":
        put(dumped(comparison_json.document([comparison], judgement)))
    elif form == "markdown":
        put(markdown)
    elif form == "github":
        kind = {"ok": "notice", "regression": "error"}.get(judgement.state, "warning")
        annotation = workflow.command(
            kind, judgement.sentence, {"title": f"perfwrap check: {judgement.state}"}
        )
        put(annotation + "\n", has_commands=True)
        workflow.append_summary(markdown)
    else:
        page = Page(sys.stdout)
        page.paragraph(judgement.sentence, style="bold", hanging=f"{judgement.state.capitalize()}: ")
        page.blank()
        drawing.draw_one(comparison, page)
        page.show()
