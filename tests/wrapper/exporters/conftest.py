"""A small recorded run, and what is exported of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.commands.run_report import read
from perfwrap.exporters.export_model import Exported
from perfwrap.exporters.run_export import exported
from perfwrap.run_folder import RunFolder

MS, SECOND, WALL = 1_000_000, 1_000_000_000, 1_767_225_600_000_000_000
STEPS = 60
SLOW = 40
"""The step that takes ten times as long."""


@pytest.fixture
def recorded(make_run: Any) -> Path:
    """A run of 60 steps of 100 ms, one of them slow, and a GPU at 50 % with a peak of memory."""
    run = make_run()
    start = {"monotonic_ns": SECOND, "wall_ns": WALL}
    end = {"monotonic_ns": 9 * SECOND, "wall_ns": WALL + 8 * SECOND}
    run.folder.write_manifest(
        {
            "command": ["python", "train.py", "--name", "\udcff"],
            "name": "tuned",
            "tags": ["bf16"],
            "host": {"name": "here", "cpu_model": "Some CPU", "cores_usable": 4},
            "start": start,
            "end": end,
            "clock": [start, end],
            "exit": {"code": 0},
        }
    )
    journal = run.journal(opened=SECOND, torch="2.13.0", **{"loader/1/num_workers": 0})
    monitors = run.journal(pid=101, opened=SECOND, role="monitor")
    for number in range(STEPS):
        journal.data(50 * MS, line="train.py:3:main")
        journal.forward((960 if number == SLOW else 20) * MS)
        journal.backward(20 * MS, line="train.py:6:main")
        journal.optimizer(10 * MS)
        monitors.sample("host", "cpu_cores_busy", 2.0, journal.now)
        monitors.sample("process/100", "cpu_cores", 1.0, journal.now)
        monitors.sample("gpu/0", "utilization_share", 0.5, journal.now)
        monitors.sample("gpu/0", "memory_used_bytes", 9e9 if number == SLOW else 4e9, journal.now)
    run.read()
    return Path(run.folder.path)


@pytest.fixture
def taken(recorded: Path) -> Exported:
    """What is exported of that run."""
    return exported(*read(recorded), RunFolder(recorded), "tuned")
