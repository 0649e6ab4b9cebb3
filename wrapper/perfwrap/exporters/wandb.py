"""A run in Weights & Biases: offline, unless the user gives a server.

Nothing about the exporting machine is sent (no git, packages or statistics): it did not run the training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wandb

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported
from perfwrap.exporters.naming import figure_path, series_path, shortened

TAKES = frozenset({"url", "out", "experiment"})
LONGEST_TAG = 64
STEP, SECONDS = "perfwrap/step", "perfwrap/seconds"
"""The axes of the series."""


def export(run: Exported, where: Destination) -> list[str]:
    """Create one run, in a folder below ``wandb`` or on a server."""
    folder = (where.out or Path()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = _begin(run, where, folder)
        place = Path(made.dir).parent
        _log(made, run, where)
        made.finish(exit_code=0 if run.status in ("", "finished") else 1)
        wandb.teardown()  # Otherwise its own process may still be writing the file.
    except (wandb.Error, OSError) as error:
        raise PerfwrapError(
            f"Weights & Biases did not accept the run: {error}", "Without --url, the run is written locally."
        ) from error
    if where.url:
        return [f"Sent to {made.url or where.url}"]
    return [f"Written: {place}", f"To send it to a server: wandb sync {place}"]


def _begin(run: Exported, where: Destination, folder: Path) -> Any:
    """Start the run."""
    return wandb.init(
        project=where.experiment or "perfwrap",
        name=run.name,
        dir=str(folder),
        mode="online" if where.url else "offline",
        config=dict(run.conditions),
        notes=run.sentence,
        tags=[shortened(tag, LONGEST_TAG) for tag in run.tags],
        job_type="perfwrap",
        settings=_settings(where),
    )


def _settings(where: Destination) -> Any:
    """Return the settings that keep the library from adding other data."""
    known = {
        "console": "off",
        "silent": True,
        "disable_git": True,
        "save_code": False,
        "x_disable_stats": True,
        "x_disable_meta": True,
        "x_save_requirements": False,
    }
    return wandb.Settings(**known, **({"base_url": where.url} if where.url else {}))


def _log(made: Any, run: Exported, where: Destination) -> None:
    """Send the series row by row, the figures as the summary, and the reports as files."""
    rows: dict[tuple[str, float], dict[str, float]] = {}
    for series in run.series:
        axis = STEP if series.steps else SECONDS
        path = series_path(series)
        made.define_metric(path, step_metric=axis)
        moments = series.steps or [round((time - run.begin_ns) / 1e9, 3) for time in series.time_ns]
        for moment, value in zip(moments, series.values, strict=True):
            rows.setdefault((axis, moment), {axis: moment})[path] = value
    for _, row in sorted(rows.items()):
        made.log(row)
    words = {"perfwrap_verdict": run.verdict, "perfwrap_confidence": run.confidence}
    made.summary.update({**{figure_path(figure): figure.value for figure in run.figures}, **words})
    for name, text in run.documents.items():
        # Files in the run's own folder are sent, too.
        (Path(made.dir) / name).write_text(text, encoding="utf-8")
    if run.page is not None:
        (Path(made.dir) / run.page.name).write_bytes(run.page.read_bytes())
        # Offline the server's address is unknown: the name of the file among the run's files.
        link = f"{made.url}/files/{run.page.name}" if where.url and made.url else f"files/{run.page.name}"
        made.summary["perfwrap_report"] = link
        made.notes = f"{run.sentence}\n\n[Whole report]({link})"
