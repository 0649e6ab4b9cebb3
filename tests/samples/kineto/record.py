"""Records ``cpu_training.json.gz``: four steps of a small training on the CPU, under torch.profiler with stacks."""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

STEPS = 4


def train() -> None:
    """Train five steps, of which the profiler leaves out the first."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(80, 32), torch.randint(0, 4, (80,)))
    model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_function = torch.nn.CrossEntropyLoss()
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=STEPS),
        on_trace_ready=write,
        with_stack=True,
        record_shapes=False,
    ) as profiler:
        for inputs, labels in DataLoader(data, batch_size=16):
            optimizer.zero_grad()
            loss = loss_function(model(inputs), labels)
            loss.backward()
            optimizer.step()
            loss.item()
            profiler.step()


def write(profiler: profile) -> None:
    """Write the trace, packed, to where the command line says."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        text = plain.read_bytes().replace(str(Path(__file__).resolve()).encode(), b"train.py")
    Path(sys.argv[1]).write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    train()
