"""Whatever becomes of the recording, the command runs, prints what it prints and ends as it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap.launch import sidecar_process

PROGRAM = [
    sys.executable,
    "-c",
    "import sys; print('mine'); print('also mine', file=sys.stderr); sys.exit(3)",
]

REPORT = """\
import sys
from perfwrap.launch import signals
with signals.blocked():
    import perfwrap.commands.run_report
def report_run(folder, choice):
    {body}
perfwrap.commands.run_report.report_run = report_run
"""
"""Puts another report in the place of perfwrap's."""


def run(command: list[str], **settings: Any) -> Any:
    return subprocess.run(command, capture_output=True, text=True, **settings)


def folder_of(prefix: list[str]) -> Path:
    return Path(prefix[prefix.index("--out") + 1])


def manifest_of(prefix: list[str]) -> Any:
    return json.loads((folder_of(prefix) / "run.json").read_text())


def test_a_run_folder_that_cannot_be_made_costs_only_the_recording(wrap: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    prefix = wrap("--out", str(tmp_path / "file" / "run"))
    answer = run([*prefix, *PROGRAM])
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    mine, also_mine = answer.stderr.splitlines()
    assert mine.startswith("perfwrap: this run is not recorded: Cannot create the run folder ")
    assert also_mine == "also mine"


def test_a_full_disk_costs_only_the_recording(wrap: Any, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=4k,nr_inodes=4 none "$1" || exit 99; shift; "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "-", str(tmp_path), *wrap(), *PROGRAM]
    try:
        answer = run(command, cwd="/")
    except FileNotFoundError:
        pytest.skip("there is no unshare(1)")
    if answer.returncode in (99, 1):
        pytest.skip(f"mounting is not permitted here: {answer.stderr}")
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    assert answer.stderr.count("\n") == 2
    assert "No space left on device" in answer.stderr


def test_processor_time_of_the_command_and_of_the_monitors_is_kept_apart(wrap: Any) -> None:
    prefix = wrap("--no-report")
    busy = "import time\nwhile time.process_time() < 1: pass\nprint(time.process_time())"
    used = float(run([*prefix, sys.executable, "-S", "-c", busy]).stdout)
    kept = manifest_of(prefix)["processor_seconds"]
    assert used <= kept["command"] < used + 0.5
    assert kept["monitors"] > 0


FILLED = """
mount -t tmpfs -o size=4m none "$1" || exit 99
cd "$1"; copy=$2; shift 2
"$@"
status=$?
rm filler
cp -r run "$copy" && exit $status
"""


def test_a_disk_that_is_full_at_the_end_costs_only_the_end(wrap: Any, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    # Full only once the monitors have a journal.
    wait = "until find run/journal -size +200k | grep -q .; do sleep 0.02; done; "
    program = ["sh", "-c", wait + "cat /dev/zero > filler 2> /dev/null; echo mine; exit 3"]
    command = ["unshare", "-m", "sh", "-c", FILLED, "-", str(inside), str(tmp_path / "copy")]
    try:
        answer = run([*command, *wrap("--out", str(inside / "run"), "--no-report"), *program])
    except FileNotFoundError:
        pytest.skip("there is no unshare(1)")
    if answer.returncode in (99, 1):
        pytest.skip(f"mounting is not permitted here: {answer.stderr}")
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    *unwritten, recorded = answer.stderr.splitlines()
    assert recorded.startswith("perfwrap: recorded in ")
    # The monitors give room back when they end their journal: it may do for the second attempt.
    ended = json.loads((tmp_path / "copy" / "run.json").read_text())["exit"]
    assert ended == (None if unwritten else {"code": 3})
    assert all("cannot write the end of this run: " in line for line in unwritten)
    assert not list((tmp_path / "copy").glob(".run.json*"))
    (journal,) = (tmp_path / "copy" / "journal").iterdir()
    assert b"command_end" in journal.read_bytes(), "the monitors were notified, and ended in order"


@pytest.mark.parametrize("descriptors", [5, 6, 7])
def test_where_hardly_a_descriptor_is_left_the_command_has_it(descriptors: int, wrap: Any) -> None:
    signals = "import re; print(re.findall('Sig(?:Ign|Blk).*', open('/proc/self/status').read()))"
    program = [
        sys.executable,
        "-S",
        "-c",
        f"{signals}; import os; print(len(os.environ)); raise SystemExit(3)",
    ]
    limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "-"]
    bare = run([*limited, *program], close_fds=True)
    assert bare.returncode == 3, bare.stderr
    answer = run([*limited, *wrap("--no-report"), *program])
    assert (answer.returncode, answer.stdout) == (3, bare.stdout)
    assert answer.stderr.splitlines()[-1] == "perfwrap: this run is not recorded: Too many open files"


def test_a_failed_injection_leaves_the_monitors(wrap: Any, tmp_path: Path) -> None:
    changed = "from perfwrap.launch import injection\ninjection.SHIM = 'none.py'"
    prefix = wrap("--no-report", changed=changed)
    answer = run([*prefix, *PROGRAM])
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    assert answer.stderr.startswith("perfwrap: the Python processes of this run are not recorded: ")
    assert answer.stderr.count("\n") == 3
    assert list((folder_of(prefix) / "journal").iterdir())
    assert "Python processes" in manifest_of(prefix)["warnings"][0]


def test_monitors_that_cannot_start_cost_only_themselves(wrap: Any) -> None:
    prefix = wrap("--no-report", changed="import sys; sys.modules['perfwrap.monitors.sidecar'] = None")
    answer = run([*prefix, *PROGRAM])
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    assert answer.stderr.count("\n") == 3
    assert "perfwrap: the monitors failed: ModuleNotFoundError" in answer.stderr
    (warning,) = manifest_of(prefix)["warnings"]
    assert warning.startswith("the monitors failed: ModuleNotFoundError")


def test_monitors_that_die_are_reported_at_the_end(
    wrap: Any, counter: Any, start: Any, wait_for: Any
) -> None:
    prefix = wrap("--no-report")
    process = start(prefix + counter.command, stderr=subprocess.PIPE)
    counter.wait_until_ready()
    for child in map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()):
        if sidecar_process.NAME in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(child, signal.SIGKILL)
    counter.end()
    assert b"perfwrap: the monitors ended by signal 9\n" in process.communicate()[1]
    assert process.returncode == 7
    assert manifest_of(prefix)["warnings"] == ["the monitors ended by signal 9"]


@pytest.mark.parametrize(
    "place",
    [
        "import perfwrap.run_folder as room; name = 'create'",
        "import perfwrap.launch.manifest as room; name = 'begin'",
        "import perfwrap.launch.manifest as room; name = 'finish'",
        "import perfwrap.launch.registered as room; name = 'wait'",
        "from perfwrap.launch.signals import Supervisor as room; name = 'wait'",
        "from perfwrap.launch import descriptors as room; name = 'let_go'",
    ],
)
def test_a_bug_of_perfwrap_is_shown_and_the_command_runs_to_its_end(place: str, wrap: Any) -> None:
    changed = f"{place}\ndef broken(*arguments): raise ValueError('a bug')\nsetattr(room, name, broken)"
    answer = run([*wrap("--no-report", changed=changed), *PROGRAM])
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    assert "also mine\n" in answer.stderr
    assert answer.stderr.count("ValueError: a bug") == 1


@pytest.mark.parametrize(
    "body",
    [
        "print('to the wrong stream')",
        "raise ValueError('a bug')",
        "import os; os.abort()",
        "sys.exit(44)",
        "import no_such_module",
        "from perfwrap.errors import PerfwrapError; raise PerfwrapError('nothing to see')",
        "sys.stderr.close(); print('into the void')",
    ],
)
def test_whatever_the_report_does_output_and_exit_status_are_the_commands(body: str, wrap: Any) -> None:
    answer = run([*wrap("--no-monitors", changed=REPORT.format(body=body)), *PROGRAM])
    assert (answer.returncode, answer.stdout) == (3, "mine\n")


def test_the_report_comes_after_the_command_and_on_standard_error(wrap: Any) -> None:
    prefix = wrap("--no-monitors", changed=REPORT.format(body="print('report of', folder)"))
    answer = run([*prefix, *PROGRAM])
    assert answer.stderr == f"also mine\nreport of {folder_of(prefix)}\n"


def test_a_report_that_cannot_be_made_is_one_line_with_the_run_folder(wrap: Any) -> None:
    prefix = wrap("--no-monitors", changed=REPORT.format(body="import no_such_module"))
    (line,) = run([*prefix, "true"]).stderr.splitlines()
    assert line.startswith("perfwrap: no report: No module named 'no_such_module'")
    assert str(folder_of(prefix)) in line


def test_a_report_that_breaks_off_says_so(wrap: Any) -> None:
    prefix = wrap("--no-monitors", changed=REPORT.format(body="raise ValueError('odd')"))
    answer = run([*prefix, *PROGRAM])
    assert answer.returncode == 3
    assert "the report failed: ValueError: odd" in answer.stderr
    assert str(folder_of(prefix)) in answer.stderr


def test_ctrl_c_ends_the_report_and_the_status_stays_the_commands(wrap: Any, terminal: Any) -> None:
    body = "import time; print('reporting', flush=True); exec('while True: time.sleep(0.05)')"
    opened = terminal([*wrap("--no-monitors", changed=REPORT.format(body=body)), *PROGRAM])
    opened.expect("reporting\n")
    opened.send("\x03")
    assert os.waitstatus_to_exitcode(opened.wait()) == 3
    assert "Traceback" not in opened.text


def test_a_signal_during_the_report_ends_the_report(wrap: Any, start: Any) -> None:
    body = "import time; print('reporting', flush=True); exec('while True: time.sleep(0.05)')"
    prefix = wrap("--no-monitors", changed=REPORT.format(body=body))
    process = start([*prefix, "sh", "-c", "exit 3"], stderr=subprocess.PIPE)
    assert process.stderr.readline() == b"reporting\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 3


def test_no_report_names_the_run_folder(wrap: Any) -> None:
    prefix = wrap("--no-monitors", "--no-report")
    (line,) = run([*prefix, "true"]).stderr.splitlines()
    assert str(folder_of(prefix)) in line


def test_a_folder_in_use_is_a_mistake_of_the_command_line(wrap: Any, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    for used in (tmp_path / "used", tmp_path / "used" / "file"):
        answer = run([*wrap("--out", str(used)), "sh", "-c", f"touch {tmp_path}/ran"])
        assert answer.returncode == 2
        assert str(used) in answer.stderr
    assert not (tmp_path / "ran").exists()


def test_an_empty_folder_can_be_the_run_folder(wrap: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run([*wrap("--out", str(tmp_path / "empty")), "true"]).returncode == 0
    assert (tmp_path / "empty" / "run.json").exists()


def test_an_inner_perfwrap_joins_the_outer_run(wrap: Any, tmp_path: Path) -> None:
    outer, inner = wrap("--no-monitors", "--no-report"), [sys.executable, "-m", "perfwrap", "run", "--"]
    program = [sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'], os.getppid())"]
    shell = ["sh", "-c", 'echo $$; "$@"; echo $?', "-"]
    answer = run(outer + shell + inner + program, cwd=tmp_path)
    pid, line, status = answer.stdout.splitlines()
    # The inner one is not there any more: the program is the shell's own child.
    path = [f"{folder_of(outer)}/.inject", *filter(None, [os.environ.get("PYTHONPATH")])]
    assert line == f"{os.pathsep.join(path)} {pid}"
    assert status == "0"
    assert len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "perfwrap-runs").exists()


def test_an_inner_perfwrap_fails_as_a_shell_would(wrap: Any) -> None:
    answer = run([*wrap(), sys.executable, "-m", "perfwrap", "run", "no-such-program"])
    assert answer.returncode == 127
    assert answer.stdout == ""


def test_an_inner_folder_is_not_used_and_that_is_said(wrap: Any, tmp_path: Path) -> None:
    outer, inner = wrap(), wrap("--out", str(tmp_path / "inner"))
    answer = run(outer + inner + PROGRAM)
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    assert f"already recording into {folder_of(outer)}" in answer.stderr
    assert not (tmp_path / "inner").exists()


@pytest.mark.parametrize("name", ["PERFWRAP_OFF", "PERFWRAP_DISABLE"])
def test_switched_off_only_the_command_is_left(name: str, wrap: Any) -> None:
    prefix = wrap()
    answer = run([*prefix, *PROGRAM], env={**os.environ, name: "1"})
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, "mine\n", "also mine\n")
    assert not folder_of(prefix).exists()
