"""What an exporter writes into a run folder goes nowhere else, whichever user made the folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported

FILES = {"prometheus": "perfwrap.prom", "otlp": "otlp.jsonl", "tensorboard": "tensorboard"}
LIBRARIES = {"prometheus": "prometheus_client", "otlp": "opentelemetry.sdk", "tensorboard": "tensorboard"}


@pytest.mark.parametrize("link", ["exports", "in exports"])
@pytest.mark.parametrize("exporter", FILES)
def test_a_link_in_a_run_folder_is_not_followed(
    taken: Exported, tmp_path: Path, exporter: str, link: str
) -> None:
    pytest.importorskip(LIBRARIES[exporter], reason=f"needs {exporter}")
    module = import_module(f"perfwrap.exporters.{exporter}")
    assert getattr(module, "FILE", "tensorboard") == FILES[exporter]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    exports = taken.folder / "exports"
    if link == "exports":
        exports.symlink_to(elsewhere)
    else:
        exports.mkdir()
        target = elsewhere if exporter == "tensorboard" else elsewhere / "new"
        (exports / FILES[exporter]).symlink_to(target)
    with pytest.raises(PerfwrapError, match="is a link"):
        module.export(taken, Destination())
    assert not list(elsewhere.iterdir())
