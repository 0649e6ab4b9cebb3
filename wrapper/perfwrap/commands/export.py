"""Export a run to experiment trackers and monitoring systems."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, cast

import typer

from perfwrap.analysis import run_names
from perfwrap.commands.options.output_options import Run
from perfwrap.commands.run_report import read
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exporter
from perfwrap.exporters.run_export import exported
from perfwrap.private_files import leads_somewhere
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.waiting import Waiting
from perfwrap.run_folder import RunFolder

MODULES = {"speedscope": "speedscope_file"}
"""The modules of exporters with another name."""
EXPORTERS = ("mlflow", "wandb", "tensorboard", "otlp", "prometheus", "pprof", "speedscope", "flamegraph")
VARIABLES = {
    "mlflow": "MLFLOW_TRACKING_URI",
    "wandb": "WANDB_BASE_URL",
    "otlp": "OTEL_EXPORTER_OTLP_ENDPOINT",
}
"""The variable with the server of each project; perfwrap sends data only to the server given with --url."""

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
"""Disables the telemetry of these libraries; they read the variables when they are imported."""


def export(
    run: Run = run_names.LATEST,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NAME",
            help=f"Export to {', '.join(EXPORTERS[:-1])} or {EXPORTERS[-1]}.",
            show_default=False,
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Name of the exported run.", show_default="the name of the run"),
    ] = "",
    experiment: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="MLflow experiment, Weights & Biases project or OpenTelemetry service.",
            show_default="perfwrap",
        ),
    ] = "",
    url: Annotated[
        str,
        typer.Option(metavar="URL", help="Send the data to this server.", show_default="nothing is sent"),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File or folder to write.", show_default="see docs/exporting.md"),
    ] = None,
) -> None:
    """Export to MLflow, W&B, TensorBoard, OTLP or Prometheus.

    Exports the verdict, the breakdown of the step time, findings, step times and the samples of the monitors. Needs the
    library of the project, for example: pip install 'perfwrap[mlflow]'. Data is sent only to a server given with --url.
    pprof, speedscope and flamegraph (SVG) export the stacks, those of an inspected step included, and need no library.
    """
    exporter = _exporter(to)
    _refuse(to, exporter, {"url": url, "out": out, "experiment": experiment})
    _refuse_device(out)
    folder = run_names.find(str(run))
    diagnosis, timeline = read(folder)
    taken = exported(diagnosis, timeline, RunFolder(folder), name or run_names.called(folder))
    with Waiting(f"Exporting to {to}"):
        lines = exporter.export(taken, Destination(url, out, experiment))
    if not taken.is_dated:
        lines.append("The time of this recording is unknown: its series start at the time of the import.")
    variable = VARIABLES.get(to, "")
    if "url" in exporter.TAKES and not url and os.environ.get(variable):
        lines.append(
            f"Nothing was sent. To send it to the server in {variable}: --url {os.environ[variable]}"
        )
    page = Page(sys.stdout)
    for line in lines:
        page.line((line, ""))
    page.show()


def _exporter(to: str) -> Exporter:
    """Return the exporter; PerfwrapError if there is none of that name, or its library is missing."""
    if to not in EXPORTERS:
        what = f"--to does not take {to!r}." if to else "Choose where to export to."
        raise PerfwrapError(what, f"Use one of: {', '.join(f'--to {name}' for name in EXPORTERS)}.")
    os.environ.update(QUIET)
    try:
        return cast("Exporter", import_module(f"perfwrap.exporters.{MODULES.get(to, to)}"))
    except ImportError as error:
        raise PerfwrapError(
            f"Exporting to {to} needs a library that is not installed: {error}.",
            f"Install it: {sys.executable} -m pip install 'perfwrap[{to}]'",
        ) from error


def _refuse_device(out: Path | None) -> None:
    """Raise PerfwrapError for a pipe or device: the libraries would wait forever."""
    if out is not None and leads_somewhere(str(out)) and not (out.is_file() or out.is_dir()):
        raise PerfwrapError(
            f"{out} is not a file or folder.", "Choose another path with --out, or omit --out."
        )


def _refuse(to: str, exporter: Exporter, options: dict[str, object]) -> None:
    """Raise PerfwrapError for options that the exporter does not use, or that exclude each other."""
    for option, value in options.items():
        if value and option not in exporter.TAKES:
            raise PerfwrapError(f"--to {to} does not take --{option}.", "Omit it; see docs/exporting.md.")
    if options["url"] and options["out"]:
        raise PerfwrapError("--url and --out exclude each other.", "Give one of them.")
