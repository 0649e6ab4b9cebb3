"""Hand a run over to the programs that keep track of experiments and machines."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from perfwrap.commands import runs
from perfwrap.commands.output_options import Run
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere
from perfwrap.run_folder import RunFolder

if TYPE_CHECKING:
    from perfwrap.exporters.model import Exporter

EXPORTERS = ("mlflow", "wandb", "tensorboard", "otlp", "prometheus")
VARIABLES = {
    "mlflow": "MLFLOW_TRACKING_URI",
    "wandb": "WANDB_BASE_URL",
    "otlp": "OTEL_EXPORTER_OTLP_ENDPOINT",
}
"""Where each project's own programs would send to: here only what the command line names counts."""

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
"""What keeps these libraries from telling their makers that they are used; they look when they are imported."""


def export(
    run: Run = runs.LATEST,
    to: Annotated[
        str, typer.Option("--to", metavar="NAME", help=f"One of {', '.join(EXPORTERS)}.", show_default=False)
    ] = "",
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="What to call the run there.", show_default="as the run is called"),
    ] = "",
    experiment: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="MLflow's experiment, Weights & Biases' project or OpenTelemetry's service.",
            show_default="perfwrap",
        ),
    ] = "",
    url: Annotated[
        str,
        typer.Option(metavar="URL", help="Send it to this server.", show_default="none: all stays here"),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The file or folder to write.", show_default="see docs/exporting.md"
        ),
    ] = None,
) -> None:
    """Hand a run over to MLflow, Weights & Biases, TensorBoard, OpenTelemetry or Prometheus.

    Verdict, account, findings, step times and what the monitors sampled, through each project's own library, which
    is installed by, for example: pip install 'perfwrap[mlflow]'. Nothing is sent anywhere unless --url names a server.
    """
    exporter = _exporter(to)
    _refuse(to, exporter, {"url": url, "out": out, "experiment": experiment})
    _refuse_device(out)
    folder = runs.find(str(run))
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.commands.report import read
    from perfwrap.exporters.model import Destination
    from perfwrap.exporters.run import exported
    from perfwrap.reports.page import Page
    from perfwrap.reports.waiting import Waiting

    diagnosis, timeline = read(folder)
    taken = exported(diagnosis, timeline, RunFolder(folder), name or runs.called(folder))
    with Waiting(f"Exporting to {to}"):
        lines = exporter.export(taken, Destination(url, out, experiment))
    if not taken.is_dated:
        lines.append("When this run was recorded is not known: its series begin when it was imported.")
    variable = VARIABLES.get(to, "")
    if "url" in exporter.TAKES and not url and os.environ.get(variable):
        lines.append(
            f"Nothing was sent: --url sends it, for example to {os.environ[variable]} of {variable}."
        )
    page = Page(sys.stdout)
    for line in lines:
        page.line((line, ""))
    page.show()


def _exporter(to: str) -> Exporter:
    """Return the exporter of that name; PerfwrapError where there is none, or where its library is missing."""
    if to not in EXPORTERS:
        what = f"There is no exporter {to!r}." if to else "Nothing says where to export to."
        raise PerfwrapError(what, f"One of: {', '.join(f'--to {name}' for name in EXPORTERS)}.")
    os.environ.update(QUIET)
    try:
        return cast("Exporter", import_module(f"perfwrap.exporters.{to}"))
    except ImportError as error:
        raise PerfwrapError(
            f"Exporting to {to} needs a library that is not installed here: {error}.",
            f"{sys.executable} -m pip install 'perfwrap[{to}]'",
        ) from error


def _refuse_device(out: Path | None) -> None:
    """Raise PerfwrapError for a pipe and the like: the libraries that write would wait for ever."""
    if out is not None and leads_somewhere(str(out)) and not (out.is_file() or out.is_dir()):
        raise PerfwrapError(
            f"{out} is neither a file nor a folder.", "Choose another with --out, or leave it out."
        )


def _refuse(to: str, exporter: Exporter, options: dict[str, object]) -> None:
    """Raise PerfwrapError for options that the exporter has no use for, or that exclude each other."""
    for option, value in options.items():
        if value and option not in exporter.TAKES:
            raise PerfwrapError(
                f"--{option} says nothing to {to}.", "Leave it out; docs/exporting.md tells why."
            )
    if options["url"] and options["out"]:
        raise PerfwrapError("--url and --out say two places.", "Name the one or the other.")
