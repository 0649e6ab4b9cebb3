"""OTLP against a server that decodes what it is sent, as a collector does, and in a file."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs OpenTelemetry's OTLP exporter")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from perfwrap.exporters import otlp


class Collector(HTTPServer):
    """Keeps each request by its path, and answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: dict[str, bytes] = {}
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.taken[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


def test_a_collector_gets_metrics_and_spans_with_the_times_of_the_run(
    taken: Exported, collector: Collector
) -> None:
    reported = otlp.export(taken, Destination(url=f"{collector.url}/", experiment="training"))
    assert reported[0].startswith(f"Sent to {collector.url}/: ")
    metrics = ExportMetricsServiceRequest.FromString(collector.taken["/v1/metrics"])
    about = {one.key: one.value.string_value for one in metrics.resource_metrics[0].resource.attributes}
    assert about["service.name"] == "training"
    assert about["service.instance.id"] == "tuned"
    assert about["perfwrap.verdict"] == taken.verdict
    found = {metric.name: metric for metric in metrics.resource_metrics[0].scope_metrics[0].metrics}
    points = found["perfwrap.step_time"].gauge.data_points
    assert found["perfwrap.step_time"].unit == "s"
    assert [point.as_double for point in points] == list(taken.series[0].values)
    assert [point.time_unix_nano for point in points] == list(taken.series[0].time_ns)
    parts = found["perfwrap.summary.account"].gauge.data_points
    assert {one.attributes[0].value.string_value for one in parts} >= {"data", "forward", "python"}
    assert sum(one.as_double for one in parts) == pytest.approx(1.0)

    traces = ExportTraceServiceRequest.FromString(collector.taken["/v1/traces"])
    spans = list(traces.resource_spans[0].scope_spans[0].spans)
    by_id = {span.span_id: span for span in spans}
    run = next(span for span in spans if span.name == "run")
    assert (run.start_time_unix_nano, run.end_time_unix_nano) == (taken.begin_ns, taken.end_ns)
    assert {span.trace_id for span in spans} == {run.trace_id}
    steps = [span for span in spans if span.name == "step"]
    assert len(steps) == len(taken.steps)
    assert all(by_id[span.parent_span_id].name == "run" for span in steps)
    phases = [span for span in spans if span.name in ("data", "forward", "backward", "optimizer")]
    assert len(phases) == 4 * len(steps)
    for phase in phases:
        step = by_id[phase.parent_span_id]
        assert step.start_time_unix_nano <= phase.start_time_unix_nano <= phase.end_time_unix_nano
        assert phase.end_time_unix_nano <= step.end_time_unix_nano


def test_a_server_that_refuses_it_is_reported(taken: Exported, collector: Collector) -> None:
    collector.status = 400
    with pytest.raises(PerfwrapError, match="did not accept the run") as raised:
        otlp.export(taken, Destination(url=collector.url))
    assert ":4318" in raised.value.hint


def test_without_a_server_a_file_holds_a_request_on_each_line(
    taken: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    path = tmp_path / "new" / "otlp.jsonl"
    reported = otlp.export(taken, Destination(out=path))
    assert reported[0].startswith(f"Written: {path} (")
    metrics, traces = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    named = {metric["name"] for metric in metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert {"perfwrap.step_time", "perfwrap.summary.finding"} <= named
    spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert all(re.fullmatch("[0-9a-f]{32}", span["traceId"]) for span in spans)
    assert all(re.fullmatch("[0-9a-f]{16}", span["spanId"]) for span in spans)
    own = {span["spanId"] for span in spans}
    assert [span["name"] for span in spans if span.get("parentSpanId") not in own] == ["run"]
    assert collector.taken == {}  # the variable alone is no destination
    with pytest.raises(PerfwrapError, match="Cannot write"):
        otlp.export(taken, Destination(out=path / "below"))
