"""A run in MLflow: metrics by step and time, conditions as params, tags, and the reports as artefacts.

Without a server it is written to MLflow's default, the SQLite file mlflow.db, or, if ``--out`` is a folder, to its
older store of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported
from perfwrap.exporters.naming import figure_path, series_path, shortened

TAKES = frozenset({"url", "out", "experiment"})
STORE = Path("mlflow.db")
"""Where MLflow itself keeps runs in the current folder."""
ARTEFACTS = "mlartifacts"
"""The folder next to it for files, as named by MLflow's server."""
DATABASES = (".db", ".sqlite", ".sqlite3")
RETRIES = "3"
"""By default MLflow retries for four minutes if the server does not respond."""
MAX_METRICS, MAX_PARAMS = 1000, 100
"""The maximum of MLflow in one request."""
LONGEST_PARAM, LONGEST_TAG, LONGEST_NAME, LONGEST_ERROR = 500, 5000, 250, 200
FORBIDDEN = re.compile(r"[^A-Za-z0-9_. -]")
"""Characters that are not allowed in the name of a param, and the slash, which would create folders in a file store."""
MILLISECOND_NS = 1_000_000
STATUS = {"failed": "FAILED", "killed": "KILLED"}


def export(run: Exported, where: Destination) -> list[str]:
    """Create one run on a tracking server, or in a store on this machine."""
    store = (where.out or STORE).absolute()
    uri = where.url or (f"sqlite:///{store}" if store.suffix in DATABASES else store.as_uri())
    is_folder = uri.startswith("file:")
    if is_folder:
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # Otherwise newer versions refuse it.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", RETRIES)
    try:
        client = MlflowClient(tracking_uri=uri)
        made = client.create_run(
            _experiment(client, where, store),
            start_time=run.begin_ns // MILLISECOND_NS,
            run_name=run.name,
            tags=_tags(run),
        ).info.run_id
        _log(client, made, run)
        if run.page is not None:
            _link(client, made, run, where)
        client.set_terminated(made, STATUS.get(run.status, "FINISHED"), run.end_ns // MILLISECOND_NS)
    except (MlflowException, OSError, ImportError) as error:
        raise PerfwrapError(
            f"MLflow at {uri} did not accept the run: {shortened(str(error).splitlines()[0], LONGEST_ERROR)}",
            "Give a tracking server with --url, or a file.db or folder with --out.",
        ) from error
    if where.url:
        return [f"Sent: run {made} at {uri}"]
    allowed = "MLFLOW_ALLOW_FILE_STORE=true " if is_folder else ""
    return [f"Written: run {made} in {store}", f"{allowed}mlflow ui --backend-store-uri {uri}"]


def _experiment(client: Any, where: Destination, store: Path) -> str:
    """Return the id of the experiment, which is created if necessary."""
    name = where.experiment or "perfwrap"
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    # Otherwise a database would leave files in the current folder.
    beside = (store.parent / ARTEFACTS).as_uri() if store.suffix in DATABASES and not where.url else None
    return str(client.create_experiment(name, artifact_location=beside))


def _tags(run: Exported) -> dict[str, str]:
    """Return the tags of the run; MLflow shows the note as its description."""
    known = {
        "mlflow.note.content": run.documents["report.md"],
        "mlflow.source.name": run.command,
        "perfwrap.verdict": run.verdict,
        "perfwrap.verdict.sentence": run.sentence,
        "perfwrap.confidence": run.confidence,
        "perfwrap.host": run.host,
        "perfwrap.tags": ", ".join(run.tags),
        "perfwrap.version": run.version,
    }
    return {name: shortened(text, LONGEST_TAG) for name, text in known.items() if text}


def _log(client: Any, made: str, run: Exported) -> None:
    """Send numbers, conditions and reports."""
    params = iter(_params(run))
    while some := list(islice(params, MAX_PARAMS)):
        client.log_batch(made, params=some)
    metrics = _metrics(run)
    while several := list(islice(metrics, MAX_METRICS)):
        client.log_batch(made, metrics=several)
    for name, text in run.documents.items():
        client.log_text(made, text, name)
    if run.page is not None:
        client.log_artifact(made, str(run.page))


def _link(client: Any, made: str, run: Exported, where: Destination) -> None:
    """Add a link to the uploaded report, as a tag and at the beginning of the description."""
    assert run.page is not None
    if where.url:
        link = f"{where.url.rstrip('/')}/get-artifact?path={run.page.name}&run_uuid={made}"
    else:
        link = f"{client.get_run(made).info.artifact_uri}/{run.page.name}"
    client.set_tag(made, "perfwrap.report", link)
    note = f"[Whole report]({link})\n\n{run.documents['report.md']}"
    client.set_tag(made, "mlflow.note.content", shortened(note, LONGEST_TAG))


def _params(run: Exported) -> Sequence[Param]:
    """Return the conditions, each name once."""
    named = {shortened(FORBIDDEN.sub(".", key), LONGEST_NAME): text for key, text in run.conditions.items()}
    return [Param(name, shortened(text, LONGEST_PARAM)) for name, text in named.items()]


def _metrics(run: Exported) -> Iterator[Metric]:
    """Yield the figures at step 0 and the series by step, or by second if they have no steps."""
    for figure in run.figures:
        yield Metric(figure_path(figure), figure.value, run.end_ns // MILLISECOND_NS, 0)
    for series in run.series:
        path = series_path(series)
        steps = series.steps or [(time - run.begin_ns) // 10**9 for time in series.time_ns]
        for step, time, value in zip(steps, series.time_ns, series.values, strict=True):
            yield Metric(path, value, time // MILLISECOND_NS, step)
