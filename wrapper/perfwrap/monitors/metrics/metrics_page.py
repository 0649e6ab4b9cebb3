"""The page of metrics: its content, and the server that sends it to authorized clients.

The format is https://prometheus.io/docs/instrumenting/exposition_formats/, written by prometheus_client. The labels are
``run``, ``rank`` and ``gpu``, so there are as many series as ranks and GPUs, however long a run is.
"""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from perfwrap.journal_format import FIELD_SEPARATOR
from perfwrap.monitors.metrics.metrics_options import PATH, MetricsOptions
from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.progress.shown_progress import SharedProgress

LONGEST_TOKEN = 4096
PATIENCE_SECONDS = 10
"""The time limit for a client to send its request."""
ENTITIES = re.compile(r"^(?P<entity>host|cgroup|gpu)(?:/(?P<number>\d+))?$")
"""The monitors' series that are shown; no processes and cores, because there are too many."""
UNFIT = re.compile(r"[^a-z0-9_]+")


class RunCollector:
    """Computes the metrics for each request."""

    def __init__(self, run: str, journal: JournalWriter, shown: SharedProgress) -> None:
        self._run, self._journal, self._shown = run, journal, shown

    def collect(self) -> Iterable[Metric]:
        """Return all metrics; prometheus_client calls this method."""
        yield from self._of_trainers()
        yield from self._of_monitors()

    def _of_trainers(self) -> Iterable[Metric]:
        """Yield the progress of each rank."""
        labels = ("run", "rank")
        steps = CounterMetricFamily("perfwrap_steps", "Training steps so far.", labels=labels)
        times = SummaryMetricFamily("perfwrap_step_seconds", "Duration of the steps.", labels=labels)
        slowest = GaugeMetricFamily(
            "perfwrap_step_p99_seconds", "99th percentile of the steps so far.", labels=labels
        )
        waits = CounterMetricFamily(
            "perfwrap_batch_wait_seconds", "Time spent waiting for batches.", labels=labels
        )
        for one in self._shown.trainers:
            values = (self._run, one.rank)
            steps.add_metric(values, one.steps)
            times.add_metric(values, one.timed_steps, one.step_seconds)
            slowest.add_metric(values, one.p99_seconds)
            waits.add_metric(values, one.wait_seconds)
        stalled = GaugeMetricFamily(
            "perfwrap_stalled", "1 during a stall: no step ends and no process is active.", labels=("run",)
        )
        stalled.add_metric((self._run,), float(self._shown.stalled))
        yield from (steps, times, slowest, waits, stalled)

    def _of_monitors(self) -> Iterable[Metric]:
        """Yield the newest value of each series of host, control group and GPUs."""
        families: dict[str, Any] = {}
        for series, value in sorted(self._journal.latest_values().items()):
            entity, metric = series.split(FIELD_SEPARATOR, 1)
            found = ENTITIES.match(entity)
            if found is None:
                continue
            name = f"perfwrap_{found['entity']}_{UNFIT.sub('_', metric.lower())}"
            labels = ("run", "gpu") if found["number"] else ("run",)
            family = families.setdefault(
                name, GaugeMetricFamily(name, f"{metric} of {found['entity']}.", labels=labels)
            )
            family.add_metric((self._run, found["number"])[: len(labels)], value)
        yield from families.values()


class Server(ThreadingHTTPServer):
    """A server that does not look up the name of this machine."""

    def server_bind(self) -> None:
        """Use the address as given."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class MetricsServer:
    """Answers requests until the end; a monitor that does not sample."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()

    def quick(self, now_ns: int) -> None:
        """Nothing to sample."""

    def full(self, now_ns: int) -> None:
        """Nothing to write."""

    def close(self) -> None:
        """Accept no more requests; those in progress may finish."""
        self._server.server_close()


def serve(options: MetricsOptions, collector: RunCollector) -> MetricsServer:
    """Start to serve; OSError if the port or the token is not available."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    token = _token(options.token_file)

    class Handler(BaseHTTPRequestHandler):
        """Answers one request."""

        timeout = PATIENCE_SECONDS
        server_version, sys_version = "perfwrap", ""

        def do_GET(self) -> None:  # noqa: N802 - the library requires this name
            """Send the metrics to an authorized client."""
            given = self.headers.get("Authorization", "").encode("latin-1", "replace")
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
            elif not token and not is_local(self.headers.get("Host")):
                self.send_error(403)
            elif token and not hmac.compare_digest(given, b"Bearer " + token):
                self.send_error(401)
            else:
                self._send(generate_latest(registry))

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing: the terminal belongs to the program."""

        def _send(self, page: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    server = Server((options.address, options.port), Handler)
    server.daemon_threads = True
    return MetricsServer(server)


def is_local(host: str | None) -> bool:
    """Return whether a request names this machine, by its address or as localhost, or no host at all.

    Any other name may come from a web page whose name was redirected to this machine (DNS rebinding).
    """
    if host is None:
        return True
    name = re.sub(r":[0-9]*$", "", host.strip().lower())
    if name == "localhost":
        return True
    try:
        return ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _token(file: str) -> bytes:
    """Return the required token, or nothing; OSError if the file cannot be read or is empty."""
    if not file:
        return b""
    token = Path(file).read_bytes()[:LONGEST_TOKEN].strip()
    if not token:
        raise OSError(f"the token's file {file} is empty")
    return token
