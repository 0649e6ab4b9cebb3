"""The monitors run beside the command, come from where the launcher comes from, and end with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import perfwrap
import polars as pl
from perfwrap.launch import sidecar_process
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals


def sidecar_of(launcher: int) -> int:
    """Return the pid of the process in which the monitors run."""
    children = map(int, Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split())
    (found,) = [pid for pid in children if sidecar_process.NAME in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


def folder_of(prefix: list[str]) -> Path:
    return Path(prefix[prefix.index("--out") + 1])


def journals(prefix: list[str], pid: int) -> list[Path]:
    return list((folder_of(prefix) / "journal").glob(f"*-{pid}-*"))


def test_it_records_no_signal_and_no_python_start(wrap: Any, counter: Any, start: Any, wait_for: Any) -> None:
    prefix = wrap("--no-report")
    process = start(prefix + counter.command)
    counter.wait_until_ready()
    pid = sidecar_of(process.pid)
    wait_for(lambda: journals(prefix, pid), "the monitors' journal")
    blocked = Path(f"/proc/{pid}/status").read_text().split("SigBlk:")[1].split()[0]
    # All but KILL, STOP and two that the C library keeps to itself.
    assert int(blocked, 16) | 1 << 8 | 1 << 18 | 1 << 31 | 1 << 32 == (1 << 64) - 1
    starts = "".join(path.read_text() for path in (folder_of(prefix) / "starts").iterdir())
    assert f"\t{pid}\t" not in starts
    assert f"\t{counter.pid}\t" in starts
    counter.end()
    assert process.wait() == 7
    assert not Path(f"/proc/{pid}").exists()
    assert not (folder_of(prefix) / "monitors.log").exists()


def test_one_that_is_killed_changes_nothing_for_the_command_and_coverage_says_when(
    wrap: Any, counter: Any, start: Any, wait_for: Any
) -> None:
    prefix = wrap("--no-report")
    process = start(prefix + counter.command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    counter.wait_until_ready()
    pid = sidecar_of(process.pid)
    wait_for(lambda: journals(prefix, pid), "the monitors' journal")
    wait_for(lambda: is_watching(prefix), "all monitors to watch")
    os.kill(pid, signal.SIGKILL)
    killed_ns = time.monotonic_ns()
    wait_for(lambda: time.monotonic_ns() - killed_ns > 10**8, "some time that nobody watches")
    counter.end()
    output, errors = process.communicate()
    assert (process.returncode, output) == (7, b"")
    assert b"the monitors ended by signal 9" in errors
    timeline = run_journals.read(RunFolder(folder_of(prefix)))
    rows = timeline.coverage.filter(pl.col("what").is_in(["monitor", "host", "processes"]))
    assert set(rows["what"]) == {"monitor", "host", "processes"}
    end = rows["end"].max()
    assert isinstance(end, int)
    assert end <= killed_ns < timeline.run["end"]["monotonic_ns"], "nothing is said of the time after"
    (note,) = timeline.coverage.filter(pl.col("what") == "monitor")["note"]
    assert note.startswith("ended without closing its journal: it was killed")


def is_watching(prefix: list[str]) -> bool:
    timeline = run_journals.read(RunFolder(folder_of(prefix)))
    return {"host", "processes"} <= set(timeline.coverage["what"]) and not timeline.samples.is_empty()


def test_one_that_hangs_is_killed_and_the_run_ends(
    wrap: Any, counter: Any, start: Any, wait_for: Any
) -> None:
    prefix = wrap("--no-report")
    process = start(prefix + counter.command, stderr=subprocess.PIPE)
    counter.wait_until_ready()
    pid = sidecar_of(process.pid)
    os.kill(pid, signal.SIGSTOP)
    counter.end()
    assert b"the monitors did not finish" in process.communicate()[1]
    assert process.returncode == 7
    assert not Path(f"/proc/{pid}").exists()


def test_modules_in_the_current_directory_do_not_disturb_it(wrap: Any, tmp_path: Path) -> None:
    for name in ("psutil", "random", "runpy", "typing", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    prefix = [str(Path(sys.executable).parent / "perfwrap"), *wrap("--no-report")[3:]]
    if shutil.which(prefix[0]) is None:
        prefix[:1] = [sys.executable, "-P", "-m", "perfwrap"]
    answer = subprocess.run([*prefix, "sh", "-c", "exit 5"], cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 5
    assert "monitors" not in answer.stderr


def test_it_is_found_where_the_launcher_was_found(wrap: Any, tmp_path: Path) -> None:
    # A perfwrap that only PYTHONPATH knows: a copy with another version.
    source = Path(perfwrap.__file__).parent
    copy = shutil.copytree(
        source, tmp_path / "elsewhere" / "perfwrap", ignore=shutil.ignore_patterns("__pycache__")
    )
    (copy / "monitors" / "sidecar.py").write_text("import perfwrap; raise ImportError(perfwrap.__file__)\n")
    if not (copy / "_inject").is_dir():
        shutil.copytree(source.parents[1] / "inject", copy / "_inject")
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    answer = subprocess.run(
        [*wrap("--no-report"), "sh", "-c", "exit 5"],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert answer.returncode == 5
    assert f"perfwrap: the monitors failed: ImportError: {copy}/__init__.py\n" in answer.stderr
