"""Diagnose files of other profilers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfwrap import __version__, units
from perfwrap.analysis.run_reader import read_files
from perfwrap.commands.options.option_values import choice
from perfwrap.commands.run_report import show
from perfwrap.redaction import masked_words
from perfwrap.reports.waiting import Waiting
from perfwrap.run_folder import create
from perfwrap.sources import files as sources
from perfwrap.timeline import storage


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files that a profiler wrote, or folders of them.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the run; must be new or empty.",
            show_default="perfwrap-runs/<UTC time>-<name>",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Read all files as this format.", show_default="by the content of each file"
        ),
    ] = None,
) -> None:
    """Diagnose files of other profilers, e.g. torch.profiler traces.

    Also reads Nsight Systems exports, memory snapshots and more. All files must be of one run; give those of all ranks
    together. The format is detected from the content, with or without gzip. The run folder that is written can be
    read again with `perfwrap report`. Nothing in a file is executed.
    """
    if format is not None:
        choice("--format", format, sources.formats())
    paths = sources.expand(files)
    run = {
        "command": masked_words(["perfwrap", "import", *(str(file) for file in files)]),
        "versions": {"perfwrap": __version__},
    }
    show(_imported(paths, run, format, out))


def _imported(paths: tuple[Path, ...], run: dict[str, Any], format: str | None, out: Path | None) -> Path:
    """Write the files' timeline to a new run folder and return its path; afterwards it is no longer in memory."""
    with Waiting(f"Reading {units.counted(len(paths), 'file')}"):
        timeline, _ = read_files(paths, run, format)
    folder = create(out, [Path(_name(paths)).name])
    folder.write_manifest(timeline.run)
    with Waiting(f"Writing {folder.path.name}"):
        storage.save(timeline, folder.timeline)
    return folder.path


def _name(paths: tuple[Path, ...]) -> str:
    """Return a name for the run: that of its first file without suffixes."""
    return paths[0].name.split(".")[0] or "import"
