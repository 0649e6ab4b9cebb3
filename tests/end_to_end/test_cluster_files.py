"""The files for clusters in docs/clusters are valid, and what they run works: here on CPUs, without a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

CLUSTERS = Path(__file__).resolve().parents[2] / "docs" / "clusters"
PATHS = sorted(CLUSTERS.glob("*.yaml"))
VERSION = "1.32"
TRAINING = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
time.sleep(0.2)  # PyTorch 2.13: a thread of gloo that ends its last reduction while Python exits aborts the process
"""


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the templates of pods in a document."""
    spec = document["spec"]
    replicas = spec.get("pytorchReplicaSpecs")
    if replicas:
        return [one["template"] for one in replicas.values()]
    return [spec["template"]] if "template" in spec else []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_file_for_kubernetes_is_valid(path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate").validate
    checked = 0
    for document in documents(path):
        if "apiVersion" not in document:
            continue
        if document["kind"] != "PyTorchJob":
            validate(document, VERSION, strict=True)
        for template in pods(document):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
            validate(pod, VERSION, strict=True)
            checked += 1
    assert checked or not path.name.startswith(("kubernetes", "pytorch"))


def command(path: Path, replaced: dict[str, str]) -> list[str]:
    """Return the command of the first container, with this environment's programs and other places."""
    (template,) = (pod for document in documents(path) for pod in pods(document))
    container = template["spec"]["containers"][0]
    words = []
    for word in container["command"] + container["args"]:
        for old, new in replaced.items():
            word = word.replace(old, new)
        words.append(word)
    assert words[0] == "perfwrap"
    start = words.index("torchrun")
    words[start : start + 1] = [sys.executable, "-m", "torch.distributed.run"]
    return [sys.executable, "-m", "perfwrap", *words[1:]]


def environment() -> dict[str, str]:
    """Return the environment of a container."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of the training script."""
    pytest.importorskip("torch", reason="the files run a training")
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


@pytest.mark.torch
def test_the_job_of_one_pod_records_its_ranks(place: Path) -> None:
    words = command(CLUSTERS / "kubernetes-job.yaml", {"/runs/$(POD)": str(place / "runs" / "train-x1")})
    done = subprocess.run(words, cwd=place, env=environment(), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    diagnosis = json.loads((place / "runs" / "train-x1" / "diagnosis.json").read_text())
    assert [rank["rank"] for rank in diagnosis["ranks"]] == [0, 1]


@pytest.mark.torch
def test_the_pods_of_an_indexed_job_join_one_run(place: Path) -> None:
    started = []
    for index in ("0", "1"):
        replaced = {
            "/runs/train-1": str(place / "runs" / "train-1"),
            "$(JOB_COMPLETION_INDEX)": index,
            "train-0.train": "127.0.0.1",
            "--nproc-per-node=2": "--nproc-per-node=1",
        }
        words = command(CLUSTERS / "kubernetes-indexed-job.yaml", replaced)
        started.append(
            subprocess.Popen(words, cwd=place, env=environment(), stderr=subprocess.PIPE, text=True)
        )
    said = [each.communicate(timeout=280)[1] for each in started]
    assert [each.returncode for each in started] == [0, 0], said
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", "report", str(place / "runs" / "train-1"), "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [rank["rank"] for rank in json.loads(done.stdout)["ranks"]] == [0, 1]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_file_starts_perfwrap_with_options_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    help_text = subprocess.run(
        [sys.executable, "-m", "perfwrap", "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    started = re.sub(r"[\[\]\",]", " ", text)
    (found, *_) = re.findall(r"perfwrap\s+run\b(.*?)\s--\s", started, re.DOTALL)
    options = re.findall(r"--[a-z-]+", found)
    assert options
    assert all(f"  {option}" in help_text for option in options)
