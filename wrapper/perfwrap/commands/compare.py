"""Compare runs, or groups of equal runs: what changed, and whether it is more than noise."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfwrap.analysis import run_names
from perfwrap.commands import compared_runs
from perfwrap.commands.options.option_values import choice, words
from perfwrap.commands.options.output_options import Allow, put
from perfwrap.comparison.comparing import compare as compare_sides
from perfwrap.comparison.obstacles import allowances
from perfwrap.errors import PerfwrapError
from perfwrap.reports import comparison_json, comparison_markdown
from perfwrap.reports.json import dumped
from perfwrap.reports.terminal import comparison as drawing
from perfwrap.reports.terminal.page import Page

FORMATS = ("terminal", "json", "markdown")


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Runs, or their diagnosis.json; each is compared with the first. Repeated runs: A1,A2,A3.",
            autocompletion=run_names.complete,
        ),
    ],
    allow: Allow = "",
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Output format: terminal, json or markdown.")
    ] = "terminal",
) -> None:
    """Compare runs: step time, findings and settings, with noise.

    A difference counts if it is larger than the noise. One run of each side shows the noise within a run only. For the
    noise between runs, repeat both and alternate them: perfwrap compare a1,a2,a3 b1,b2,b3. Runs are shown without a
    conclusion if they are not comparable: another machine, GPU, PyTorch version, program, batch size, number of ranks
    or end of a step, too few steady steps, or other programs used the CPU. --allow names differences that are intended.
    """
    form, intended = choice("--format", format, FORMATS), allowances(words(allow))
    if len(names) < 2:
        raise PerfwrapError("compare needs two runs or more.", "For example: perfwrap compare before after")
    sides = [compared_runs.side(name) for name in names]
    found = [compare_sides(sides[0], side, intended) for side in sides[1:]]
    if form == "json":
        put(dumped(comparison_json.document(found)))
    elif form == "markdown":
        put("\n".join(comparison_markdown.text(one) for one in found))
    else:
        page = Page(sys.stdout)
        drawing.draw(sides, found, page)
        page.show()
