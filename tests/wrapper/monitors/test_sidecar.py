"""The whole sidecar as the launcher uses it: started, given the command, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors import MODULES, MONITORS, sidecar
from perfwrap.monitors import monitor_journal as journal_module
from perfwrap.monitors.monitor_journal import clock_pair

LIGHT = """
import sys
import perfwrap.monitors.sidecar
from importlib import import_module
for name in {names}:
    import_module("perfwrap.monitors." + name)
heavy = {{"polars", "numpy", "torch", "typer", "rich", "psutil", "pynvml", "perfwrap.timeline"}}
print(sorted(heavy & set(sys.modules)))
"""


def test_the_monitors_load_no_heavy_library_and_their_own_only_when_they_watch() -> None:
    code = LIGHT.format(names=list(MODULES.values()))
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


def test_every_monitor_of_the_folder_is_listed() -> None:
    import perfwrap.monitors

    folder = Path(perfwrap.monitors.__file__).parent
    with_watch = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\ndef watch(" in path.read_text()
    }
    assert with_watch == set(MODULES.values())
    assert [name for names, _ in MONITORS for name in names] == list(MODULES)


def test_a_run_is_watched_from_its_command_to_its_end(
    start_sidecar: Callable[..., Any], run_python: Callable[..., subprocess.Popen[bytes]]
) -> None:
    command = run_python("import sys; sys.stdin.read()")
    sidecar = start_sidecar(rate_hz=20)
    sidecar.watch(command.pid)
    sidecar.wait_until(
        lambda content: (
            content.values(f"process/{command.pid}", "read_bytes_per_s")
            or content.values(f"process/{command.pid}", "threads")
            and len(content.values("host", "cpu_cores_busy")) > 20
        ),
        "the command's series",
    )
    content = sidecar.finish()
    assert content.facts["role"] == "monitor"
    assert content.facts[f"process/{command.pid}/ppid"] == str(os.getpid())
    assert len(content.end) == 1
    assert len(content.clock) >= 2
    watched = [name for name, _, duration, _ in content.coverage if duration == 0]
    assert {"host", "processes"} <= set(watched)
    cost = content.values("sidecar", "cpu_seconds")
    assert cost == sorted(cost)
    assert cost[-1] > 0
    times = [time for time, _ in content.samples["host", "cpu_cores_busy"]]
    assert times == sorted(times)
    assert str(sidecar.process.pid) not in {key.split("/")[1] for key in content.facts if "process/" in key}


def test_a_launcher_beside_another_of_its_machine_watches_its_own_processes_and_looks_for_stalls(
    start_sidecar: Callable[..., Any], run_python: Callable[..., subprocess.Popen[bytes]]
) -> None:
    command = run_python("import sys; sys.stdin.read()")
    sidecar = start_sidecar(rate_hz=20, only_processes=True)
    sidecar.watch(command.pid)
    sidecar.wait_until(
        lambda content: content.values(f"process/{command.pid}", "threads"), "the command's series"
    )
    content = sidecar.finish()
    watched = {name for name, _, duration, _ in content.coverage if duration == 0}
    assert {"processes", "stalls"} <= watched
    assert not {"host", "gpu"} & watched


def test_signals_do_not_reach_it(start_sidecar: Callable[..., Any]) -> None:
    sidecar = start_sidecar()
    sidecar.wait_until(lambda content: "role" in content.facts, "the first fact")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        sidecar.process.send_signal(number)
    assert len(sidecar.finish().end) == 1


def test_a_command_that_ends_at_once_leaves_a_whole_journal(start_sidecar: Callable[..., Any]) -> None:
    content = start_sidecar().finish()
    assert len(content.end) == 1
    assert content.facts["role"] == "monitor"


def test_it_ends_when_the_launcher_is_killed(tmp_path: Path, read_journal: Any, wait_for: Any) -> None:
    for name in ("journal", "starts", "inject"):
        (tmp_path / name).mkdir()
    code = (
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-m', 'perfwrap.monitors.sidecar', sys.argv[1], str(os.getpid())]\n"
        "print(subprocess.Popen(command, stdin=subprocess.PIPE).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        wait_for(lambda: list((tmp_path / "journal").glob("*.pwj")), "the journal")
        launcher.kill()
    wait_for(
        lambda: not Path(f"/proc/{pid}").exists() or b") Z" in Path(f"/proc/{pid}/stat").read_bytes(),
        "its end",
    )
    (journal,) = (tmp_path / "journal").glob("*.pwj")
    assert len(read_journal(journal).end) == 1


def test_a_missing_library_costs_only_what_needs_it(
    start_sidecar: Callable[..., Any], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "psutil.py").write_text("raise ImportError('psutil is broken')")
    (broken / "ctypes.py").write_text("raise RuntimeError('ctypes is broken')")
    sidecar = start_sidecar(environment={"PYTHONPATH": str(broken)})
    sidecar.wait_until(lambda content: content.values("host", "cpu_cores_busy"), "the host's first series")
    content = sidecar.finish()
    assert content.notes("memory, swap and disks")
    (note,) = content.notes("gpu")
    # Two threads import it at once: the second may get the half-made module instead of the error.
    assert "ctypes" in note
    assert len(content.end) == 1


def test_a_folder_that_cannot_be_written_is_an_error_of_the_sidecar_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perfwrap.monitors.sidecar", str(tmp_path / "gone"), str(os.getpid())]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert answer.returncode != 0
    assert answer.stdout == ""
    assert answer.stderr.splitlines()[-1].startswith("FileNotFoundError")


@pytest.mark.skipif(
    any(Path(folder, "libnvidia-ml.so.1").exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")),
    reason="this machine has an NVIDIA driver",
)
def test_no_driver_is_one_line_of_coverage(start_sidecar: Callable[..., Any]) -> None:
    content = start_sidecar().finish()
    gpu = [row for row in content.coverage if "gpu" in row[0] or "pcie" in row[0]]
    assert [(what, duration, note) for what, _, duration, note in gpu] == [
        ("gpu", 1, "no NVIDIA driver: libnvidia-ml.so.1 not found")
    ]


def test_how_the_command_ended_is_a_mark(start_sidecar: Callable[..., Any]) -> None:
    sidecar = start_sidecar()
    sidecar.process.stdin.write(b'end {"signal": 9}\nsomething else\n')
    sidecar.process.stdin.flush()
    assert sidecar.finish().marks == [("command_end", '{"signal": 9}')]


def test_a_step_of_the_wall_clock_is_a_mark_and_disturbs_nothing(
    book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset_ns = sidecar._note_clock(book.writer, book.writer.clock())
    assert book.read().marks == []
    monotonic_ns, wall_ns = clock_pair()
    monkeypatch.setattr(journal_module, "clock_pair", lambda: (monotonic_ns, wall_ns - 3600 * 10**9))
    sidecar._note_clock(book.writer, offset_ns)
    assert book.read().marks == [("clock_step", "the wall clock moved by -3600.0 s")]


FILLED = """
mount -t tmpfs -o size=300k none "$1" || exit 99
mkdir "$1/journal" "$1/starts" "$1/inject"
"$2" -m perfwrap.monitors.sidecar "$1" $$ '{"rate_hz": 1000}'
status=$?
cp "$1"/journal/* "$3" && exit $status
"""


def test_a_full_disk_ends_the_watching_and_coverage_says_when(
    tmp_path: Path, read_journal: Any, wait_for: Any
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    words = ["unshare", "-m", "sh", "-c", FILLED, "-", str(inside), sys.executable, str(outside)]
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare(1)")

    def is_full() -> bool:
        place = Path(f"/proc/{process.pid}/root{inside}/journal")
        files = list(place.glob("*.pwj")) if process.poll() is None else []
        # The reserved slots behind the header are written when nothing else can be.
        return process.poll() is not None or bool(files and files[0].read_bytes()[32:64].strip(b"\0"))

    wait_for(is_full, "the disk to be full")
    answer = process.communicate(timeout=240)
    if process.returncode in (99, 1):
        pytest.skip(f"mounting is not permitted here: {answer[1]!r}")
    assert (process.returncode, *answer) == (0, b"", b"")
    content = read_journal(next(outside.iterdir()))
    assert content.notes("journal") == ["nothing was written any more: the disk took no more"]
    assert len(content.end) == 1
    last = max(time for samples in content.samples.values() for time, _ in samples)
    assert last <= content.end[0]
