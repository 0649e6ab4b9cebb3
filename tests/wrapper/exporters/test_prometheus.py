from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported

pytest.importorskip("prometheus_client", reason="needs prometheus-client")

from perfwrap.exporters import prometheus
from prometheus_client.parser import text_string_to_metric_families

NAME = re.compile(
    r"perfwrap_[a-z_]*(_(seconds|bytes|ratio|watts|hertz|celsius|cores|info)|steps|_per_second)$"
)


def test_the_file_reads_back_with_base_units_and_the_run_on_each_line(
    taken: Exported, tmp_path: Path
) -> None:
    path = tmp_path / "collector" / "run.prom"
    reported = prometheus.export(taken, Destination(out=path))
    families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    samples = [sample for family in families for sample in family.samples]
    assert reported[0] == f"Written: {path}"
    assert all(NAME.match(sample.name) for sample in samples)
    assert {sample.labels["run"] for sample in samples} == {"tuned"}
    assert all(family.documentation for family in families)
    assert len(samples) == len(taken.figures) + 2
    found = {(sample.name, sample.labels.get("statistic")): sample.value for sample in samples}
    assert found["perfwrap_step_time_seconds", "median"] == pytest.approx(0.1)
    assert found["perfwrap_run_end_timestamp_seconds", None] == pytest.approx(taken.end_ns / 1e9)
    info = next(sample.labels for sample in samples if sample.name == "perfwrap_run_info")
    assert info == {
        "run": "tuned",
        "verdict": taken.verdict,
        "confidence": taken.confidence,
        "host": "here",
        "torch": "2.13.0",
    }


def test_two_runs_of_one_folder_agree_on_what_a_metric_is(taken: Exported, tmp_path: Path) -> None:
    for name in ("a", "b"):
        prometheus.export(replace(taken, name=name), Destination(out=tmp_path / f"{name}.prom"))
    texts = [(tmp_path / f"{name}.prom").read_text(encoding="utf-8") for name in ("a", "b")]
    about = [{line for line in text.splitlines() if line.startswith("#")} for text in texts]
    assert about[0] == about[1]


def test_a_file_that_the_collector_would_not_read_or_that_cannot_be_is_refused(
    taken: Exported, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for out, words in (
        (tmp_path / "metrics.txt", ".prom"),
        (tmp_path / "file" / "a.prom", "Cannot write"),
    ):
        with pytest.raises(PerfwrapError, match=words) as raised:
            prometheus.export(taken, Destination(out=out))
        assert raised.value.hint
