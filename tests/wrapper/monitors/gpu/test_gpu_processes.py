"""Whose a process on a GPU is, by what /proc and the start records say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.gpu.gpu_processes import GpuProcesses, Owners
from perfwrap.monitors.gpu.nvml import Gpu

LAUNCHER, TRAINER, WORKER, DAEMON, STRANGER = 100, 101, 102, 103, 200


def add(proc: Path, pid: int, parent: int, name: str = "python") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    fields = ["0"] * 50
    fields[0], fields[1], fields[19] = "S", str(parent), str(pid * 10)
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (folder / "comm").write_text(f"{name}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with a launcher, its trainer and worker, a daemon that left them, and a stranger."""
    folder = tmp_path / "proc"
    for pid, parent in ((LAUNCHER, 1), (TRAINER, LAUNCHER), (WORKER, TRAINER), (DAEMON, 1)):
        add(folder, pid, parent)
    add(folder, STRANGER, 1, "secret")
    return folder


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """A folder for start records."""
    folder = tmp_path / "starts"
    folder.mkdir()
    return folder


def test_descendants_of_the_launcher_are_the_run_s_and_others_are_not(proc: Path, starts: Path) -> None:
    owners = Owners(starts, LAUNCHER, True, proc)
    found = {pid: owners.owner(pid) for pid in (TRAINER, WORKER, DAEMON, STRANGER)}
    assert found == {TRAINER: "run", WORKER: "run", DAEMON: "other", STRANGER: "other"}


def test_a_process_that_perfwrap_reached_is_the_run_s_whatever_its_parent(proc: Path, starts: Path) -> None:
    from perfwrap.run_folder import START_FIELDS

    values = {"pid": str(DAEMON), "start_ticks": str(DAEMON * 10)}
    (starts / "here.log").write_text("\t".join(values.get(name, "x") for name in START_FIELDS) + "\n")
    assert Owners(starts, LAUNCHER, True, proc).owner(DAEMON) == "run"


def test_no_process_is_called_a_stranger_where_pids_may_be_another_machine_s(
    proc: Path, starts: Path
) -> None:
    owners = Owners(starts, LAUNCHER, False, proc)
    assert owners.owner(TRAINER) == "run"
    assert owners.owner(STRANGER) == "unknown"
    assert Owners(starts, LAUNCHER, True, proc).owner(999) == "unknown"


def test_a_server_that_works_for_many_is_no_stranger(proc: Path, starts: Path) -> None:
    add(proc, 300, 1, "nvidia-cuda-mps")
    assert Owners(starts, LAUNCHER, True, proc).owner(300) == "unknown"


def test_other_people_s_memory_is_counted_and_only_their_program_s_name_is_written(
    proc: Path, starts: Path, book: Any
) -> None:
    gpu = Gpu(None, book.writer, 0, None)
    processes = GpuProcesses(book.writer, gpu, Owners(starts, LAUNCHER, True, proc))
    processes.write(1, [(TRAINER, 5), (STRANGER, 7), (DAEMON, 9)])
    processes.write(2, [(TRAINER, 5), (STRANGER, None)])
    content = book.read()
    assert content.values("gpu/0", "other_processes") == [2.0, 1.0]
    assert content.values("gpu/0", "other_memory_used_bytes") == [16.0]
    assert content.values("gpu/0", f"process/{STRANGER}/memory_used_bytes") == [7.0]
    assert content.facts[f"gpu/0/process/{STRANGER}/owner"] == "other"
    assert content.facts[f"gpu/0/process/{STRANGER}/program"] == "secret"
    assert f"gpu/0/process/{TRAINER}/program" not in content.facts
    assert content.facts[f"gpu/0/process/{TRAINER}/owner"] == "run"
