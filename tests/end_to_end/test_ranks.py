"""Two ranks that really talk to each other, one of them slow, under the real command."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

PROGRAM = """\
import os, sys, time
import torch
import torch.distributed as dist
if not dist.is_available(): sys.exit(77)
child = os.fork()
rank = 1 if child == 0 else 0
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 4)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(40):
    loss = net(torch.ones(2, 4)).sum()
    sgd.zero_grad()
    loss.backward()  # BEFORE
    if rank == 1:
        time.sleep(0.03)
    dist.all_reduce(net.weight.grad)
    sgd.step()
dist.destroy_process_group()
if child == 0: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.timing
def test_the_late_rank_is_named_and_what_the_other_waits_for_it_is_measured(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "perfwrap", "run", "--out", "the_run", "--", sys.executable, str(script)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    if ended.returncode == 77:
        pytest.skip("this build of torch has no torch.distributed")
    assert ended.returncode == 0, ended.stderr
    reported = json.loads((tmp_path / "the_run" / "diagnosis.json").read_text())
    finding = next(one for one in reported["findings"] if one["rule"] == "straggler_rank")
    assert "wait for rank 1" in finding["evidence"][0]
    assert finding["location"]["line"] == 1 + PROGRAM.splitlines().index("    loss.backward()  # BEFORE")
    assert reported["skew"]["measured"]
    assert reported["skew"]["latest"] == 1
    first, second = reported["ranks"]
    assert first["meetings"]["wait_ns"] > 20_000_000, (
        "a sleep of 30 ms takes no less, however busy the machine is"
    )
    assert first["cores"] == second["cores"]
    assert reported["processes"]["trainer"] == 2
    assert "2 training processes side by side" in ended.stderr + ended.stdout
