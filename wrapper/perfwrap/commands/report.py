"""Print the report of a recorded run."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from perfwrap.analysis import run_names
from perfwrap.commands.options.option_values import choice
from perfwrap.commands.options.output_options import Ignore, Price, Rules, Run, put
from perfwrap.commands.run_report import choose_rules, diagnose_and_keep, show, write_html, write_trace
from perfwrap.reports import json, markdown, workflow
from perfwrap.reports.ci import code_quality, sarif
from perfwrap.run_folder import RunFolder

FORMATS = ("terminal", "json", "markdown", "github", "sarif", "gitlab")

Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help=f"Output format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."
    ),
]
Html = Annotated[bool, typer.Option("--html", help="Also rewrite RUN/report.html.")]
Every = Annotated[
    bool, typer.Option("--all", help="List every finding in full and every rule that was not checked.")
]


def report(
    run: Run = run_names.LATEST,
    format: Format = "terminal",
    html: Html = False,
    every: Every = False,
    rules: Rules = "",
    ignore: Ignore = "",
    price: Price = "",
) -> None:
    """Print the report of a recorded run.

    The report is recomputed from the recording, on any machine and without PyTorch. RUN/diagnosis.json is rewritten.
    --format json prints the document of docs/diagnosis-json.md, markdown a text for a pull request, github the
    annotations of GitHub Actions (and the job summary, if GITHUB_STEP_SUMMARY names a file), sarif a file for code
    scanning and editors, gitlab a code quality report.
    """
    form = choice("--format", format, FORMATS)
    folder = RunFolder(run_names.find(str(run)))
    chosen = choose_rules(rules, ignore, price)
    if form == "terminal":
        show(folder.path, html, chosen, every)
        return
    diagnosis, timeline = diagnose_and_keep(folder, html, chosen)
    if form == "json":
        put(json.text(diagnosis))
    elif form == "markdown":
        put(markdown.text(diagnosis, folder.path))
    elif form == "sarif":
        put(sarif.text(diagnosis))
    elif form == "gitlab":
        put(code_quality.text(diagnosis))
    else:
        workflow.append_summary(markdown.text(diagnosis, folder.path))
        put(workflow.annotated(diagnosis, os.environ.get("GITHUB_WORKSPACE")), has_commands=True)
    if html:
        write_html(diagnosis, timeline, folder.report)
    write_trace(diagnosis, timeline, folder)
