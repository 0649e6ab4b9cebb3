from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported

pytest.importorskip("tensorboard", reason="needs tensorboard, which is too large for the tests' own extra")

from perfwrap.exporters import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_the_events_read_back(taken: Exported, tmp_path: Path) -> None:
    taken = replace(taken, page=tmp_path / "report.html")
    reported = tensorboard.export(taken, Destination())
    folder = taken.folder / "exports" / "tensorboard"
    assert reported == [f"Written: {folder}", f"tensorboard --logdir {taken.folder.parent}"]
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    steps = events.Scalars("perfwrap/step_time_seconds")
    series = taken.series[0]
    assert [event.step for event in steps] == list(series.steps)
    assert [event.value for event in steps] == pytest.approx(list(series.values))
    assert steps[0].wall_time == pytest.approx(series.time_ns[0] / 1e9)
    assert events.Scalars("perfwrap_summary/step_time_seconds/median")[0].value == pytest.approx(0.1)
    assert events.Scalars("perfwrap/gpu_utilization_ratio/gpu-0")[0].value == 0.5
    report = events.Tensors("perfwrap/report")[0].tensor_proto.string_val[0].decode()
    assert taken.sentence[:20] in report
    assert report.startswith(f"[Whole report](file://{tmp_path}/report.html)\n")


def test_events_are_never_mixed_with_earlier_ones(taken: Exported, tmp_path: Path) -> None:
    where = Destination(out=tmp_path / "logs")
    assert tensorboard.export(taken, where)[1] == f"tensorboard --logdir {tmp_path / 'logs'}"
    with pytest.raises(PerfwrapError, match="already contains events"):
        tensorboard.export(taken, where)
    (tmp_path / "file").touch()
    with pytest.raises(PerfwrapError, match="Cannot write events"):
        tensorboard.export(taken, Destination(out=tmp_path / "file" / "logs"))
