"""A run that outgrows its journal's budget: its steps are still counted, its shares still right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.steps.validation import find_validation
from perfwrap.measures.trainers import find_trainers
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

pytest.importorskip("torch", reason="the loop trains with PyTorch")

SCRIPT = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
train = DataLoader(TensorDataset(torch.randn(400, 8), torch.randint(0, 2, (400,))), batch_size=4)
held_out = DataLoader(TensorDataset(torch.randn(200, 8), torch.randint(0, 2, (200,))), batch_size=4)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps, validating, begin = 0, 0.0, time.perf_counter()
for _ in range(40):
    for inputs, targets in train:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        steps += 1
        loss.item()
    start = time.perf_counter()
    model.eval()
    with torch.no_grad():
        for inputs, targets in held_out:
            (model(inputs).argmax(1) == targets).sum().item()
    model.train()
    validating += time.perf_counter() - start
print(steps, validating / (time.perf_counter() - begin))
"""


@pytest.mark.torch
def test_a_thinned_recording_still_counts_every_step_and_every_validation(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "perfwrap", "run", "--no-monitors", "--no-report", "--budget", "1"]
    answer = subprocess.run(
        [*command, "--out", str(out), "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert answer.returncode == 0, answer.stderr
    count, share = answer.stdout.split()
    evidence = Evidence(run_journals.read(RunFolder(out)))
    (trainer,) = evidence.get(find_trainers)
    steps, account = evidence.get(find_steps, trainer), evidence.get(find_account, trainer)
    assert not steps.table["detailed"].all()
    assert steps.count == int(count) == 4_000
    assert evidence.get(find_validation, trainer).count == 40
    assert account.shares["validation"] == pytest.approx(float(share), abs=0.05)
    assert sum(account.ns.values()) == account.total_ns
    (line,) = evidence.get(find_syncs, trainer)
    assert line.per_step == pytest.approx(1, abs=0.05)  # the probe rested in most steps
    # A stall of the machine while detail is paused belongs to no line.
    unknown = sum(gap.total_ns for gap in evidence.get(find_python_gaps, trainer) if gap.after is None)
    assert unknown < 0.25 * account.total_ns
