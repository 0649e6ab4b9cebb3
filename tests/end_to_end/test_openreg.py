"""openreg, the device with which PyTorch tests PrivateUse1, is recorded like a GPU.

It is in PyTorch's sources: test/cpp_extensions/open_registration_extension/torch_openreg. docs/limits.md says what was
proven on it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from perfwrap.journal_format import NON_BLOCKING, PINNED, TO_GPU
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_work import gpu_spans
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.run.phase_balance import find_phase_balance
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

from .openreg_work import SOURCE
from .planted import PERFWRAP, Recorded, check_blame

WORK = Path(__file__).with_name("openreg_work.py")
FOUND = importlib.util.find_spec("torch_openreg")

pytestmark = pytest.mark.skipif(
    FOUND is None,
    reason="needs torch_openreg, built from test/cpp_extensions/open_registration_extension/torch_openreg of PyTorch's "
    "sources as its README says",
)

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(1280, 64), torch.randint(0, 10, (1280,)))
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to("openreg")
optimizer = torch.optim.AdamW(net.parameters())
event, stream = torch.Event("openreg", enable_timing=True), torch.Stream("openreg")
for x, y in DataLoader(data, batch_size=32, pin_memory=True):
    x, y = x.to("openreg", non_blocking=True), y.to("openreg", non_blocking=True)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    event.record()
    stream.wait_event(event)
    stream.synchronize()
    torch.accelerator.synchronize()
    print(repr(loss.item()), x.device, event.query())
print(torch.accelerator.memory_allocated(), [repr(each.cpu().sum().item()) for each in net.parameters()])
"""


def test_a_loop_on_it_computes_the_same_and_is_recorded(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    bare = [sys.executable, str(program)]
    options = (
        f"run --no-monitors --no-report --no-window --max-overhead 100% --out {tmp_path / 'run'} --".split()
    )
    alone, done = (
        subprocess.run(command, capture_output=True, text=True, timeout=240)
        for command in (bare, [*PERFWRAP, *options, *bare])
    )
    assert alone.returncode == 0, alone.stderr
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr

    evidence = Evidence(run_journals.read(RunFolder(tmp_path / "run")))
    timeline, main = evidence.timeline, evidence.get(find_main_trainer)
    assert main is not None
    facts = evidence.get(find_facts, main.process)
    assert facts["device_type"] == "openreg"
    assert "gpu_time/0/clock_resets" not in facts
    names = gpu_spans(timeline, main)["name"].value_counts().rows()
    # The first call of the model shows the device.
    assert dict(names) == {"Sequential": 39, "backward": 40, "AdamW#1": 40}
    balance = evidence.get(find_phase_balance, main)
    assert balance is not None
    assert balance.on_gpu
    spans = timeline.spans
    waits = spans.filter(pl.col("operation") == "sync", pl.col("value") == 1)["name"].value_counts().rows()
    assert dict(waits)["torch.accelerator.synchronize"] == 40
    assert dict(waits)["Tensor.item"] == 40
    copies = spans.filter(pl.col("operation") == "transfer", pl.col("name") == "Tensor.to")["value"]
    assert {value >> 8 for value in copies} == {32 * 64 * 4, 32 * 8}
    assert {value & 0xFF for value in copies} == {TO_GPU | PINNED | NON_BLOCKING}
    counters = timeline.tracks.filter(pl.col("kind") == "counter")["name"].to_list()
    assert {"allocated_bytes", "peak_allocated_bytes", "device_allocs_count"} <= set(counters)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that launches work of a known time."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    assert FOUND is not None
    assert FOUND.origin is not None
    folder = tmp_path_factory.mktemp("library")
    source = folder / "work.cpp"
    source.write_text(SOURCE)
    runtime = Path(FOUND.origin).parent / "lib"
    found = ["-L", str(runtime), "-lopenreg", f"-Wl,-rpath,{runtime}"]
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-o", str(folder / "work.so"), str(source), *found], check=True
    )
    return folder / "work.so"


@pytest.mark.timing
@pytest.mark.parametrize("cause", ["data", "python", "sync", "transfer"])
def test_idle_time_of_its_streams_is_blamed_on_its_cause(library: Path, tmp_path: Path, cause: str) -> None:
    run = Recorded(tmp_path, cause, {"GPU_CHECK_DEVICE": "openreg"}, (str(WORK), str(library)))
    check_blame(run, cause)
