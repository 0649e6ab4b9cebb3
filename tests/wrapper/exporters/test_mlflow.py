from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported

pytest.importorskip("mlflow", reason="needs mlflow-skinny, which is too large for the tests' own extra")

from mlflow.tracking import MlflowClient
from perfwrap.exporters import mlflow


@pytest.mark.parametrize("store", ["mlflow.db", "runs"])
def test_a_run_reads_back_through_mlflows_client(
    taken: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    if store.endswith(".db"):
        pytest.importorskip("sqlalchemy", reason="needs SQLAlchemy for MLflow's database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    (tmp_path / "report.html").write_text("<p>")
    taken = replace(taken, page=tmp_path / "report.html", status="failed")
    reported = mlflow.export(taken, Destination(out=tmp_path / store, experiment="speed"))
    uri = reported[1].rpartition(" ")[2]
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("speed")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "tuned"
    assert run.info.status == "FAILED"
    assert run.info.start_time == taken.begin_ns // 10**6
    assert run.data.metrics["perfwrap_summary/step_time_seconds/median"] == pytest.approx(0.1)
    assert run.data.params["loader.1.num_workers"] == "0"
    assert run.data.tags["perfwrap.verdict"] == taken.verdict
    assert taken.sentence[:20] in run.data.tags["mlflow.note.content"]
    link = run.data.tags["perfwrap.report"]
    assert Path(link.removeprefix("file://")).read_text() == "<p>"
    assert run.data.tags["mlflow.note.content"].startswith(f"[Whole report]({link})")
    history = client.get_metric_history(run.info.run_id, "perfwrap/step_time_seconds")
    assert [one.step for one in history] == list(taken.series[0].steps)
    assert [one.value for one in history] == pytest.approx(list(taken.series[0].values))
    assert history[0].timestamp == taken.series[0].time_ns[0] // 10**6
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert files == {"diagnosis.json", "report.md", "report.html"}
    mlflow.export(taken, Destination(out=tmp_path / store, experiment="speed"))
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_an_impossible_store_is_reported(taken: Exported, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PerfwrapError, match="did not accept the run") as raised:
        mlflow.export(taken, Destination(out=tmp_path / "file" / "runs"))
    assert "--url" in raised.value.hint


PORT = 8471


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a real tracking server on this machine."""
    if find_spec("flask") is None and find_spec("fastapi") is None:
        pytest.skip("needs the whole mlflow, not mlflow-skinny")
    url = f"http://127.0.0.1:{PORT}"
    words = ["server", "--host", "127.0.0.1", "--port", str(PORT), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db"]
    words += ["--artifacts-destination", str(tmp_path / "artifacts")]
    serving = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).read()
                break
            except OSError:
                assert serving.poll() is None, "the server has ended"
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield url
    finally:
        os.killpg(serving.pid, 15)
        serving.wait()


def test_a_real_server_shows_the_run_and_serves_its_report(
    taken: Exported, tmp_path: Path, server: str
) -> None:
    (tmp_path / "report.html").write_text("<p>all")
    taken = replace(taken, page=tmp_path / "report.html")
    (line,) = mlflow.export(taken, Destination(url=server, experiment="speed"))
    assert line.endswith(f" at {server}")
    client = MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("speed")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["perfwrap_summary/step_time_seconds/median"] == pytest.approx(0.1)
    link = run.data.tags["perfwrap.report"]
    assert link.startswith(server)
    assert urllib.request.urlopen(link, timeout=30).read() == b"<p>all"
