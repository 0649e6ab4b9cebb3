"""The page of metrics, asked over HTTP and read by prometheus_client's own parser."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.metrics import metrics_monitor as metrics
from perfwrap.monitors.metrics.metrics_options import MetricsOptions
from perfwrap.monitors.progress.shown_progress import Figures, SharedProgress
from perfwrap.run_folder import PARTS, RunFolder

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")


@pytest.fixture
def serve(book: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that serves the data of the test on a free port."""
    servers = []
    said: list[str] = []

    def start(shown: SharedProgress, **asked: Any) -> Any:
        known = MetricsOptions(**{"port": 0, "address": "127.0.0.1", **asked})
        server = metrics.watch(book.writer, RunFolder(tmp_path / "20260131-train"), known, shown, said.append)
        start.said = said  # type: ignore[attr-defined]
        if server is not None:
            servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def get(server: Any, token: str = "", path: str = "/metrics", host: str | None = None) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}")
    if host is not None:
        request.add_header("Host", host)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read().decode())


def samples(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_steps_gauges_and_stalls_are_served_with_bounded_labels(serve: Callable[..., Any], book: Any) -> None:
    shown = SharedProgress()
    server = serve(shown)
    run = ("run", "20260131-train")
    shown.trainers = tuple(Figures(str(rank), 120, 12.0, 100, 0.2, 3.5) for rank in range(2))
    shown.stalled = True
    writer = book.writer
    for entity, metric in (("gpu/1", "power_watts"), ("host", "cpu_cores_busy"), ("cpu/3", "share")):
        writer.samples(1, [(writer.series(entity, metric), 7.0), (writer.series(entity, metric), 8.0)])
    writer.samples(1, [(writer.series("process/77", "rss_bytes", keep=False), 9.0)])
    found = samples(get(server))
    assert found["perfwrap_steps_total", (("rank", "1"), run)] == 120
    assert found["perfwrap_step_seconds_sum", (("rank", "0"), run)] == 12.0
    assert found["perfwrap_step_seconds_count", (("rank", "0"), run)] == 100
    assert found["perfwrap_step_p99_seconds", (("rank", "0"), run)] == 0.2
    assert found["perfwrap_batch_wait_seconds_total", (("rank", "0"), run)] == 3.5
    assert found["perfwrap_stalled", (run,)] == 1
    assert found["perfwrap_gpu_power_watts", (("gpu", "1"), run)] == 8.0
    assert found["perfwrap_host_cpu_cores_busy", (run,)] == 8.0
    assert {label for _, labels in found for label, _ in labels} == {"run", "rank", "gpu"}


def test_launchers_of_one_job_speak_of_the_same_run(book: Any, tmp_path: Path) -> None:
    part = RunFolder(tmp_path / "20260131-train" / PARTS / "node0.rank1")
    part.path.mkdir(parents=True)
    part.write_manifest({"part": {"job": "it", "rank": 1, "leads": False}})
    asked = MetricsOptions(0, "127.0.0.1")
    server = metrics.watch(book.writer, part, asked, SharedProgress(), lambda _: None)
    assert ("perfwrap_stalled", (("run", "20260131-train"),)) in samples(get(server))
    server.close()  # type: ignore[union-attr]
    too_high: list[str] = []
    assert (
        metrics.watch(
            book.writer, part, MetricsOptions(65536, "127.0.0.1"), SharedProgress(), too_high.append
        )
        is None
    )
    assert "no metrics: port 65536" in too_high[0]


def test_without_the_token_nothing_is_sent(serve: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame\n")
    server = serve(SharedProgress(), token_file=str(file))
    assert "perfwrap_stalled" in get(server, "sesame")
    for token in ("", "open"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(server, token)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "sesame", "/")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_page_with_a_rebound_host_name_gets_nothing(serve: Callable[..., Any], host: str) -> None:
    server = serve(SharedProgress())
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(server, host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:9", "127.0.0.2"])
def test_this_machine_may_be_called_by_its_address_or_as_localhost(
    serve: Callable[..., Any], host: str
) -> None:
    assert "perfwrap_stalled" in get(serve(SharedProgress()), host=host)


def test_who_has_the_token_may_call_the_machine_as_he_likes(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret")
    server = serve(SharedProgress(), token_file=str(tmp_path / "token"))
    assert "perfwrap_stalled" in get(server, "s3cret", host="node7.example:9")


def test_an_empty_token_and_a_port_in_use_are_said_and_cost_only_the_metrics(
    serve: Callable[..., Any], tmp_path: Path, book: Any
) -> None:
    (tmp_path / "token").write_text(" \n")
    assert serve(SharedProgress(), token_file=str(tmp_path / "token")) is None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert serve(SharedProgress(), port=taken.getsockname()[1]) is None
    empty, used = serve.said  # type: ignore[attr-defined]
    assert "is empty" in empty
    assert "no metrics: port" in used
    assert len(book.read().notes("metrics")) == 2


def test_a_missing_library_is_said_with_its_cure(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "perfwrap.monitors.metrics.metrics_page", raising=False)
    assert serve(SharedProgress()) is None
    assert serve.said == [  # type: ignore[attr-defined]
        "perfwrap: no metrics: prometheus_client is not installed: pip install 'perfwrap[metrics]'"
    ]
