"""Compare a run with a baseline and fail on a regression, for continuous integration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.analysis import run_names
from perfwrap.commands import compared_runs
from perfwrap.commands.options.option_values import choice, percentage, words
from perfwrap.commands.options.output_options import Allow, Format, Run, put
from perfwrap.comparison.comparing import Comparison, compare
from perfwrap.comparison.judgement import Judgement, judge
from perfwrap.comparison.obstacles import allowances
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import why_not, write_plain
from perfwrap.reports import comparison_json, comparison_markdown, workflow
from perfwrap.reports import junit as junit_report
from perfwrap.reports.json import dumped
from perfwrap.reports.terminal import comparison as drawing
from perfwrap.reports.terminal.page import Page

FORMATS = ("terminal", "json", "markdown", "github")

EXIT_CODES = {"ok": 0, "regression": 10, "not comparable": 11, "too noisy": 12}
"""Exit codes of `perfwrap check`; 2 is a usage error, as everywhere. Programs rarely use the other three."""


def check(
    run: Run,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="The run to compare with, or its diagnosis.json; several comma-separated.",
            autocompletion=run_names.complete,
        ),
    ],
    max_regression: Annotated[
        str, typer.Option(metavar="PERCENT", help="Maximum increase of the step time.")
    ] = "5%",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 12 if the runs are too noisy for that limit.")
    ] = False,
    allow: Allow = "",
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the result as JUnit XML.", show_default=False),
    ] = None,
    format: Format = "terminal",
) -> None:
    """Compare a run with a baseline and fail on a regression (CI).

    Exit code 0: no regression. 10: a step takes longer than allowed, by more than the noise. 11: the runs are not
    comparable. 12, with --strict: the runs are too noisy to detect a regression of that size. Give several runs of
    each side to measure the noise between runs: perfwrap check RUN1,RUN2 --baseline A,B,C. --format github prints an
    annotation and writes the job summary, if GITHUB_STEP_SUMMARY names a file.
    """
    form, intended = choice("--format", format, FORMATS), allowances(words(allow))
    limit = percentage("--max-regression", max_regression, 0, 10_000, "5%")
    comparison = compare(compared_runs.side(baseline), compared_runs.side(run), intended)
    judgement = judge(comparison, limit)
    if junit is not None:
        try:
            write_plain(junit, junit_report.text(comparison, judgement, strict))
        except OSError as error:
            raise PerfwrapError(
                f"Cannot write {junit}: {why_not(error)}.", "Choose another --junit FILE."
            ) from error
    _show(form, comparison, judgement)
    if judgement.state != "too noisy" or strict:
        raise typer.Exit(EXIT_CODES[judgement.state])


def _show(form: str, comparison: Comparison, judgement: Judgement) -> None:
    """Print the result in the chosen format."""
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
