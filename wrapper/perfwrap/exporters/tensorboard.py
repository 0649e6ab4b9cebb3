"""Scalars and a text for TensorBoard, in an event file written with TensorBoard's own library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported, own_place
from perfwrap.exporters.naming import figure_path, series_path

TAKES = frozenset({"out"})
EVENTS = "events.out.tfevents.*"


def export(run: Exported, where: Destination) -> list[str]:
    """Write an event file into a folder that has none yet, because TensorBoard would mix both."""
    folder = where.out or own_place(run.folder, "tensorboard")
    if any(folder.glob(EVENTS)):
        raise PerfwrapError(
            f"{folder} already contains events, which TensorBoard would mix with these.",
            "Delete it, or choose another folder: --out DIR",
        )
    try:
        writer = EventFileWriter(str(folder))
        for event in _events(run):
            writer.add_event(event)
        writer.close()
    except OSError as error:
        raise PerfwrapError(
            f"Cannot write events to {folder}: {error.strerror}.", "Choose another folder: --out DIR"
        ) from error
    return [f"Written: {folder}", f"tensorboard --logdir {_shown(folder, run)}"]


def _events(run: Exported) -> Iterator[Event]:
    """Yield the report, the figures at step 0, and the series by step, or by second if they have no steps."""
    at = run.end_ns / 1e9
    yield Event(wall_time=at, step=0, summary=Summary(value=[_text(_report(run))]))
    figures = [Summary.Value(tag=figure_path(one), simple_value=one.value) for one in run.figures]
    yield Event(wall_time=at, step=0, summary=Summary(value=figures))
    for series in run.series:
        tag = series_path(series)
        steps = series.steps or [(time - run.begin_ns) // 10**9 for time in series.time_ns]
        for step, time, value in zip(steps, series.time_ns, series.values, strict=True):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            yield Event(wall_time=time / 1e9, step=step, summary=summary)


def _report(run: Exported) -> str:
    """Return the report, with a link to the whole one if it was written."""
    link = f"[Whole report]({run.report})\n\n" if run.report else ""
    return link + run.documents["report.md"]


def _text(markdown: str) -> Summary.Value:
    """Return a text for the text plugin, which shows it as Markdown."""
    metadata = create_summary_metadata(display_name="", description="")
    tensor = make_tensor_proto(np.array([markdown.encode()], dtype=object))
    return Summary.Value(tag="perfwrap/report", metadata=metadata, tensor=tensor)


def _shown(folder: Path, run: Exported) -> Path:
    """Return the folder for the message: that of all runs, if the events are inside the run folder."""
    return run.folder.parent if folder.is_relative_to(run.folder) else folder
