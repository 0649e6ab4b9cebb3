"""Say what changed from one run to others, or from several to several, with its noise."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfwrap.commands import runs
from perfwrap.commands.output_options import Allow, Format, allowed, chosen, put
from perfwrap.errors import PerfwrapError

FORMATS = ("terminal", "json", "markdown")


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Runs, or their diagnosis.json; each is held against the first. Several of the same: A1,A2,A3.",
            autocompletion=runs.complete,
        ),
    ],
    allow: Allow = "",
    format: Format = "terminal",
) -> None:
    """Say what changed from one run to others: step time, where it goes, findings, settings, with its noise.

    A difference counts when it is larger than the noise that the runs themselves show. Several runs of the same thing,
    with commas between them, tell how much runs differ, which one run of each cannot:
    perfwrap compare a1,a2,a3 b1,b2,b3, made in turn. Runs that are not comparable
    (another machine, GPU, PyTorch, program, batch size or number of ranks, steps that end with something else, too few
    steady steps, a machine that others were busy on) are shown side by side without a conclusion; --allow names what
    is meant to be different.
    """
    form, meant = chosen(format, FORMATS), allowed(allow)
    if len(names) < 2:
        raise PerfwrapError(
            "There is nothing to compare the run with.", "Name two runs or more: perfwrap compare A B"
        )
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.compare.comparison import compare as held_against
    from perfwrap.reports import comparison as drawing
    from perfwrap.reports import comparison_json, comparison_markdown
    from perfwrap.reports.json import dumped
    from perfwrap.reports.page import Page

    sides = [runs.side(name) for name in names]
    found = [held_against(sides[0], side, meant) for side in sides[1:]]
    if form == "json":
        put(dumped(comparison_json.document(found)))
    elif form == "markdown":
        put("\n".join(comparison_markdown.text(one) for one in found))
    else:
        page = Page(sys.stdout)
        drawing.draw(sides, found, page)
        page.show()
