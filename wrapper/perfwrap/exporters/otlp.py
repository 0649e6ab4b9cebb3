"""Metrics and spans by OpenTelemetry's protocol (OTLP): to a collector over HTTP, or into a file for a collector.

The file has the format of opentelemetry.io/docs/specs/otel/protocol/file-exporter: a JSON request on each line; the
collector's ``otlpjsonfile`` receiver reads it. Points and spans have the times of the run, not of the export.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import set_span_in_context

from perfwrap import __version__, units
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported, own_place
from perfwrap.exporters.metrics import Metric as Exports

TAKES = frozenset({"url", "out", "experiment"})
FILE = "otlp.jsonl"
SCOPE = InstrumentationScope("perfwrap", __version__)
IDS = ("traceId", "spanId", "parentSpanId")
"""Bytes that are hexadecimal in OTLP's JSON; protobuf's own JSON has base64."""


def export(run: Exported, where: Destination) -> list[str]:
    """Send the run to a collector, or write it into a file."""
    resource = _resource(run, where.experiment or "perfwrap")
    metrics, spans = _metrics(run, resource), _spans(run, resource)
    if not where.url:
        return _write(metrics, spans, where.out or own_place(run.folder, FILE))
    base = where.url.rstrip("/")
    sent = OTLPMetricExporter(endpoint=f"{base}/v1/metrics").export(metrics) is MetricExportResult.SUCCESS
    if sent and spans:
        sent = OTLPSpanExporter(endpoint=f"{base}/v1/traces").export(spans) is SpanExportResult.SUCCESS
    if not sent:
        raise PerfwrapError(
            f"{where.url} did not accept the run.",
            "Give the address of a collector for OTLP over HTTP, for example: --url http://localhost:4318",
        )
    return [f"Sent to {where.url}: {_counted(metrics, spans)}"]


def _resource(run: Exported, service: str) -> Resource:
    """Return the resource of the figures, with the names of OpenTelemetry's conventions."""
    known: dict[str, str | tuple[str, ...]] = {
        "service.name": service,
        "service.instance.id": run.name,
        "host.name": run.host,
        "process.command_line": run.command,
        "perfwrap.version": run.version,
        "perfwrap.verdict": run.verdict,
        "perfwrap.verdict.sentence": run.sentence,
        "perfwrap.confidence": run.confidence,
        "perfwrap.tags": run.tags,
        "perfwrap.status": run.status,
        "perfwrap.report": run.report,
    }
    # Resource.create() would add this process and machine, which did not train.
    return Resource({key: value for key, value in known.items() if value})


def _metrics(run: Exported, resource: Resource) -> MetricsData:
    """Return the figures as gauges at the end of the run, and the series as gauges over it."""
    points: dict[tuple[str, Exports], list[NumberDataPoint]] = {}
    for figure in run.figures:
        at = points.setdefault((f"perfwrap.summary.{figure.metric.name}", figure.metric), [])
        at.append(NumberDataPoint(dict(figure.labels), run.begin_ns, run.end_ns, figure.value))
    for series in run.series:
        at = points.setdefault((f"perfwrap.{series.metric.name}", series.metric), [])
        at += [
            NumberDataPoint(dict(series.labels), run.begin_ns, time, value)
            for time, value in zip(series.time_ns, series.values, strict=True)
        ]
    metrics = [
        Metric(name, metric.description, metric.unit, Gauge(found))
        for (name, metric), found in points.items()
    ]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(SCOPE, metrics, "")], "")])


def _spans(run: Exported, resource: Resource) -> Sequence[ReadableSpan]:
    """Return the run as one trace: below it the chosen steps, below each its phases."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer(SCOPE.name, SCOPE.version)
    whole = tracer.start_span("run", start_time=run.begin_ns)
    inside = set_span_in_context(whole)
    for step in run.steps:
        attributes: dict[str, int | str] = {"perfwrap.step": step.number, "perfwrap.step.kind": step.why}
        span = tracer.start_span("step", inside, attributes=attributes, start_time=step.start_ns)
        within = set_span_in_context(span)
        for phase in step.phases:
            place = {"code.location": phase.place} if phase.place else {}
            tracer.start_span(phase.name, within, attributes=place, start_time=phase.start_ns).end(
                phase.end_ns
            )
        span.end(step.end_ns)
    whole.end(run.end_ns)
    return kept.get_finished_spans() if run.steps else ()


def _write(metrics: MetricsData, spans: Sequence[ReadableSpan], path: Path) -> list[str]:
    """Write a request on each line; PerfwrapError if that fails."""
    requests = [encode_metrics(metrics), *([encode_spans(spans)] if spans else [])]
    lines = [json.dumps(_plain(MessageToDict(one, use_integers_for_enums=True))) for one in requests]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise PerfwrapError(
            f"Cannot write {path}: {error.strerror}.", "Choose another file: --out FILE"
        ) from error
    line = f"Written: {path} ({_counted(metrics, spans)})"
    return [
        line,
        "The otlpjsonfile receiver of a collector reads it. To send it instead: --url http://localhost:4318",
    ]


def _plain(value: Any) -> Any:
    """Return protobuf's JSON in the form of OTLP, with hexadecimal ids."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: base64.b64decode(one).hex() if key in IDS else _plain(one) for key, one in value.items()}


def _counted(metrics: MetricsData, spans: Sequence[ReadableSpan]) -> str:
    """Return the number of points and spans in words."""
    points = sum(len(list(metric.data.data_points)) for metric in _each(metrics))
    several = units.counted(len(list(_each(metrics))), "metric")
    return f"{units.counted(points, 'point')} of {several}, {units.counted(len(spans), 'span')}"


def _each(metrics: MetricsData) -> Iterator[Metric]:
    for of_resource in metrics.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            yield from of_scope.metrics
