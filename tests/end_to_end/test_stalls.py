"""A job of two ranks that hangs, seen from outside: reported at once, ended on demand, and found in the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

HANGS = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(30):
    net(torch.ones(4, 8)).sum().backward()
    if step == 20 and dist.get_rank() == 1:
        time.sleep(3600)
    dist.all_reduce(net.weight.grad)
    optimizer.step()
"""
MEETS = HANGS[1:].splitlines().index("    dist.all_reduce(net.weight.grad)") + 1


def test_a_rank_that_never_comes_is_named_and_the_run_is_ended_on_demand(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text(HANGS[1:])
    options = ["--out", str(out), "--stall-after", "2", "--kill-on-stall", "--kill-grace", "60"]
    job = ["torchrun", "--nproc-per-node", "2", str(script)]
    words = [sys.executable, "-m", "perfwrap", "run", *options, "--", sys.executable, "-m", *job]
    words[words.index("torchrun")] = "torch.distributed.run"
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 1, done.stderr
    (file,) = (out / "stalls").glob("*.json")
    assert "rank 1 is missing" in done.stderr
    assert f"rank 0 waits in all_reduce at train.py:{MEETS}" in done.stderr
    assert str(file) in done.stderr
    record = json.loads(file.read_text())
    assert record["missing"] == ["rank 1"]
    assert record["killed"]
    assert record["ended"]["how"] != "steps resumed"
    ranks = {one["rank"]: one for one in record["processes"] if one["rank"] is not None}
    assert ranks[0]["inside"]["what"] == "collective"
    assert ranks[1]["threads"]
    diagnosis = json.loads((out / "diagnosis.json").read_text())
    assert "stalled_run" in [finding["rule"] for finding in diagnosis["findings"]]
