"""Diagnose what other tools recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfwrap import __version__
from perfwrap.errors import PerfwrapError
from perfwrap.redaction import masked_words
from perfwrap.run_folder import create


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="What a profiler wrote, or folders of it.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder; a new or empty one.", show_default="perfwrap-runs/<UTC time>-<name>"
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Read all files as this format.", show_default="by their content"),
    ] = None,
) -> None:
    """Diagnose what other tools recorded: traces of torch.profiler and nsys, memory snapshots and more, of one run.

    Each file is recognised by its content, packed with gzip or not; several ranks' files belong together. Keeps a
    run folder that `perfwrap report` reads again. Nothing in a file is ever executed.
    """
    # Imported here, not above: the command line must start fast, and recording where polars is missing.
    from perfwrap import units
    from perfwrap.commands.report import show
    from perfwrap.reports.waiting import Waiting
    from perfwrap.sources import files as sources
    from perfwrap.timeline import storage

    known = sources.formats()
    if format is not None and format not in known:
        raise PerfwrapError(f"There is no format {format!r}.", f"One of: {', '.join(known)}.")
    paths = sources.expand(files)
    run = {
        "command": masked_words(["perfwrap", "import", *(str(file) for file in files)]),
        "versions": {"perfwrap": __version__},
    }
    with Waiting(f"Reading {units.counted(len(paths), 'file')}"):
        timeline, found = sources.read(paths, run, format)
    if not any(file.read for file in found):
        raise PerfwrapError(
            "None of the files could be read: "
            + "; ".join(f"{file.path.name}: {file.problem}" for file in found[:5]),
            f"perfwrap import reads: {', '.join(known)}. `perfwrap import --help` says more.",
        )
    folder = create(out, [Path(_name(paths)).name])
    folder.write_manifest(timeline.run)
    with Waiting(f"Keeping {folder.path.name}"):
        storage.save(timeline, folder.timeline)
    show(folder.path)


def _name(paths: tuple[Path, ...]) -> str:
    """Return what to call the run: after its first file, without what says what kind of file that is."""
    return paths[0].name.split(".")[0] or "import"
