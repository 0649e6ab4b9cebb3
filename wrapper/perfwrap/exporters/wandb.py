"""A run of Weights & Biases': offline, unless the user names a server.

Of the machine that exports nothing is told (no git, no packages, no statistics): it is not the one that trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wandb

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.model import Destination, Exported
from perfwrap.exporters.naming import figure_path, series_path, shortened

TAKES = frozenset({"url", "out", "experiment"})
LONGEST_TAG = 64
STEP, SECONDS = "perfwrap/step", "perfwrap/seconds"
"""The axes of the series."""


def export(run: Exported, where: Destination) -> list[str]:
    """Make one run, in a folder below ``wandb`` or at a server."""
    folder = (where.out or Path()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = _begin(run, where, folder)
        place = Path(made.dir).parent
        _log(made, run)
        made.finish(exit_code=0 if run.status in ("", "finished") else 1)
        wandb.teardown()  # Its own process may still be writing the file otherwise.
    except (wandb.Error, OSError) as error:
        raise PerfwrapError(
            f"Weights & Biases did not take the run: {error}", "Without --url it is written here, offline."
        ) from error
    if where.url:
        return [f"Sent to {made.url or where.url}"]
    return [f"Written: {place}", f"`wandb sync {place}` sends it to a server."]


def _begin(run: Exported, where: Destination, folder: Path) -> Any:
    """Begin the run."""
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
    """Return what keeps the library to what it is given."""
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


def _log(made: Any, run: Exported) -> None:
    """Hand over the series row by row, the figures as the summary, and the reports as files."""
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
        # What lies in the run's own folder for files goes along.
        (Path(made.dir) / name).write_text(text, encoding="utf-8")
    if run.page is not None:
        (Path(made.dir) / run.page.name).write_bytes(run.page.read_bytes())
