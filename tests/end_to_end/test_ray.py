"""Trainings on Ray as docs/recipes.md runs them: by the script itself, by a recorded cluster, and by Ray Jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("ray.train", reason='needs Ray: pip install "ray[train,default]"')
if not (Path(sys.executable).parent / "ray").is_file():
    pytest.skip("the command `ray` is not beside this Python", allow_module_level=True)

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
STEPS = 40
TRAINING = f"""
import sys
import torch

def train(place):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn({STEPS * 32}, 8), torch.randn({STEPS * 32}, 2))
    model, loader = torch.nn.Linear(8, 2), torch.utils.data.DataLoader(data, batch_size=16)
    rank = 0
    if "ray" in sys.modules:
        model, loader = prepare_model(model), prepare_data_loader(loader)
        rank = ray.train.get_context().get_world_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    with open("%s/rank%d" % (place, rank), "w") as file:
        file.write(repr([part.tolist() for part in model.parameters()]))

"""
ALONE = f"""{TRAINING}
train(sys.argv[1])
sys.exit(3)
"""
RAY_TRAIN = f"""
import ray, ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
{TRAINING}
if __name__ == "__main__":
    ray.init(address=sys.argv[2])
    scaling, run = ScalingConfig(num_workers=2), RunConfig(storage_path=sys.argv[1] + "/storage")
    TorchTrainer(train, train_loop_config=sys.argv[1], scaling_config=scaling, run_config=run).fit()
    sys.exit(3)
"""
PERFWRAP = [sys.executable, "-m", "perfwrap"]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
    # A cluster for this machine alone, which ends when it is asked to.
    "RAY_AUTH_MODE": "disabled",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for results, with the two programs in its folder ``code``."""
    for name in ("code", "bare", "recorded"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "alone.py").write_text(ALONE)
    (tmp_path / "code" / "train.py").write_text(RAY_TRAIN)
    return tmp_path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], dict[str, str]]]]:
    """Starts a cluster of one node, with words before its command; returns it and the environment that reaches it."""
    # A path of at most 107 characters is left for sockets, which is less than those of the tests.
    temporary, started = tempfile.mkdtemp(prefix="perfwrap-ray-", dir="/tmp"), []

    def start(*before: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        names = ("--port", "--dashboard-port", "--ray-client-server-port", "--dashboard-agent-listen-port")
        ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
        options = [word for pair in ports.items() for word in pair]
        command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus", "4"]
        command += ["--node-ip-address", "127.0.0.1", "--temp-dir", temporary, *options]
        log = (tmp_path / "cluster.log").open("wb")
        started.append(subprocess.Popen([*before, *command], env=ENVIRONMENT, stdout=log, stderr=log))
        until = time.monotonic() + 120
        while "Ray runtime started" not in (tmp_path / "cluster.log").read_text():
            assert started[0].poll() is None and time.monotonic() < until, (
                tmp_path / "cluster.log"
            ).read_text()
            time.sleep(0.2)
        job_server = f"http://127.0.0.1:{ports['--dashboard-port']}"
        return started[0], {**ENVIRONMENT, "RAY_API_SERVER_ADDRESS": job_server}

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    shutil.rmtree(temporary, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run(*words: str, cwd: Path, env: dict[str, str] = ENVIRONMENT) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=280)


def submit(place: Path, env: dict[str, str], *words: str, variables: dict[str, str] | None = None) -> Any:
    """Submit a job with the programs of that folder, and wait for its end."""
    job = json.dumps({"env_vars": variables or {}})
    ray = [str(Path(sys.executable).parent / "ray"), "job", "submit", "--runtime-env-json", job]
    return run(*ray, "--working-dir", str(place / "code"), "--", *words, cwd=place, env=env)


def ranks(folder: Path) -> list[tuple[int, bool]]:
    """Return each rank of a report, and whether it has the steps that were made."""
    diagnosis = json.loads((folder / "diagnosis.json").read_text())
    return [(rank["rank"], rank["steps"] == STEPS) for rank in diagnosis["ranks"]]


def weights(folder: Path) -> list[str]:
    """Return what the ranks learned."""
    return [path.read_text() for path in sorted(folder.glob("rank*"))]


def test_a_script_that_starts_ray_itself(place: Path) -> None:
    bare = run(sys.executable, "train.py", str(place / "bare"), "local", cwd=place / "code")
    words = [*PERFWRAP, "run", "--out", str(place / "run"), "--", sys.executable]
    done = run(*words, "train.py", str(place / "recorded"), "local", cwd=place / "code")
    assert (bare.returncode, done.returncode) == (3, 3), bare.stderr + done.stderr
    assert weights(place / "bare") == weights(place / "recorded")
    assert len(weights(place / "bare")) == 2
    assert ranks(place / "run") == [(0, True), (1, True)]


def test_a_recorded_cluster_records_the_jobs_that_run_on_it(place: Path, cluster: Any) -> None:
    out = place / "run"
    started, env = cluster(*PERFWRAP, "run", "--run-id", "test", "--out", str(out), "--")
    done = submit(place, env, sys.executable, "train.py", str(place / "recorded"), "auto")
    assert "failed with exit code 3" in done.stdout + done.stderr
    assert len(weights(place / "recorded")) == 2
    started.send_signal(signal.SIGTERM)
    started.wait(120)
    assert ranks(out) == [(0, True), (1, True)]


def test_jobs_of_a_cluster_that_runs_already(place: Path, cluster: Any) -> None:
    _, env = cluster()
    alone, trained, unreached = place / "alone", place / "trained", place / "unreached"
    recorded = str(place / "recorded")
    done = submit(
        place, env, *PERFWRAP, "run", "--out", str(alone), "--", sys.executable, "alone.py", recorded
    )
    assert "failed with exit code 3" in done.stdout + done.stderr
    diagnosis = json.loads((alone / "diagnosis.json").read_text())
    assert diagnosis["steps"]["count"] == STEPS * 2

    words = [sys.executable, "train.py", recorded, "auto"]
    variables = {"PYTHONPATH": f"{trained}/.inject:${{PYTHONPATH}}"}
    submit(place, env, *PERFWRAP, "run", "--out", str(trained), "--", *words, variables=variables)
    assert ranks(trained) == [(0, True), (1, True)]

    submit(place, env, *PERFWRAP, "run", "--out", str(unreached), "--", *words)
    sentence = json.loads((unreached / "diagnosis.json").read_text())["verdict"]["sentence"]
    assert "If Ray's workers trained, they were not recorded" in sentence
