"""A wrapped command starts in the same state as a bare one, and its end is reported as it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SIGNAL_STATE = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]

BLOCKED = """\
import signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [10, 12, 17, 40])
sys.exit(subprocess.call(sys.argv[2:]))
"""


def both(wrap: Any, command: list[str], **settings: Any) -> tuple[Any, Any]:
    """Return what the command does bare and wrapped."""
    settings = {"capture_output": True, "stdin": subprocess.DEVNULL, **settings}
    return subprocess.run(command, **settings), subprocess.run(wrap() + command, **settings)


@pytest.mark.parametrize(
    "how",
    [
        "exit 0",
        "exit 3",
        "exit 255",
        *(f"kill -{n} $$" for n in ("TERM", "KILL", "SEGV", "INT", "HUP", "RTMIN")),
    ],
)
def test_the_exit_status_is_the_commands(how: str, wrap: Any) -> None:
    bare, wrapped = both(wrap, ["sh", "-c", f"ulimit -c 0; {how}"])
    assert wrapped.returncode == bare.returncode
    in_shell = [
        subprocess.run(["bash", "-c", '"$@"; exit $?', "-", *command], capture_output=True).returncode
        for command in (bare.args, wrap() + bare.args)
    ]
    assert in_shell[0] == in_shell[1]


def test_no_second_core_is_dumped(wrap: Any, tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")) or pattern == "":
        pytest.skip(f"cores of this machine go elsewhere: {pattern}")
    wrapped = subprocess.run([*wrap(), "sh", "-c", "ulimit -c 0; kill -SEGV $$"], cwd=tmp_path)
    assert wrapped.returncode == -signal.SIGSEGV
    assert not list(tmp_path.glob("*core*"))


@pytest.mark.parametrize(
    "kind", ["missing", "missing path", "not executable", "folder", "empty word", "below a file"]
)
def test_what_cannot_be_executed_is_reported_as_by_a_shell(kind: str, wrap: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    word = {
        "missing": "no-such-program-anywhere",
        "missing path": str(tmp_path / "none"),
        "not executable": str(plain),
        "folder": str(tmp_path),
        "empty word": "",
        "below a file": str(plain / "x"),
    }[kind]
    bare = subprocess.run(["bash", "-c", '"$1"', "-", word], capture_output=True)
    prefix = wrap()
    wrapped = subprocess.run([*prefix, word], capture_output=True, text=True)
    assert wrapped.returncode == bare.returncode
    assert wrapped.stdout == ""
    assert wrapped.stderr.startswith(f"perfwrap: {word}: ")
    assert wrapped.stderr.count("\n") == 1
    assert not Path(prefix[prefix.index("--out") + 1]).exists()


def test_a_script_whose_interpreter_is_missing_is_reported_in_one_line(wrap: Any, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    wrapped = subprocess.run([*wrap(), str(script)], capture_output=True, text=True)
    assert wrapped.returncode == 127
    assert wrapped.stderr == f"perfwrap: {script}: No such file or directory\n"


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(wrap: Any, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $0 $1; exit 6\n")
    script.chmod(0o755)
    wrapped = subprocess.run([*wrap(), str(script), "word"], capture_output=True, text=True)
    assert (wrapped.returncode, wrapped.stdout) == (6, f"{script} word\n")


@pytest.mark.parametrize(
    "around",
    [
        [],
        ["nohup"],
        ["sh", "-c", '"$@" & wait $!', "-"],
        ["bash", "-c", "trap '' USR1 CHLD INT; \"$@\"", "-"],
        [sys.executable, "-c", BLOCKED, "-"],
    ],
    ids=["plain", "nohup", "background", "ignored", "blocked"],
)
def test_the_signal_state_is_what_it_would_have_been(around: list[str], wrap: Any) -> None:
    bare = subprocess.run(around + SIGNAL_STATE, capture_output=True, stdin=subprocess.DEVNULL)
    wrapped = subprocess.run(around + wrap() + SIGNAL_STATE, capture_output=True, stdin=subprocess.DEVNULL)
    assert bare.stdout.count(b"Sig") == 3
    assert wrapped.stdout == bare.stdout


def test_a_broken_pipe_kills_silently(prefix: list[str]) -> None:
    script = "yes | head -1; echo ${PIPESTATUS[@]}"
    answer = subprocess.run([*prefix, "bash", "-c", script], capture_output=True, text=True)
    assert answer.stdout == "y\n141 0\n"
    assert "Broken pipe" not in answer.stderr


def test_an_ended_grandchild_is_noticed_where_ends_are_ignored(prefix: list[str]) -> None:
    answer = subprocess.run(
        ["bash", "-c", "trap '' CHLD; \"$@\"; echo $?", "-", *prefix, "sh", "-c", "exit 9"],
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "9\n"


def test_the_process_has_the_same_surroundings(wrap: Any, tmp_path: Path) -> None:
    script = "umask; ulimit -a; pwd; nice; ps -o sid=,pgid=,tty= -p $$; ls /proc/self/fd; cat <&5"
    command = ["bash", "-c", f'cd {tmp_path}; umask 027; exec 5<<<five; "$@"', "-"]
    bare = subprocess.run([*command, "bash", "-c", script], capture_output=True, text=True)
    wrapped = subprocess.run([*command, *wrap(), "bash", "-c", script], capture_output=True, text=True)
    assert f"{os.getsid(0)} {os.getpgid(0)}" in " ".join(bare.stdout.split())
    assert "five" in bare.stdout
    assert wrapped.stdout == bare.stdout


LISTING = """\
import os, sys
open_ones = [number for number in range(3) if os.path.exists(f"/proc/self/fd/{number}")]
with open(sys.argv[1], "w") as file:
    file.write(str(open_ones))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_stay_closed(closed: str, wrap: Any, tmp_path: Path) -> None:
    for name, prefix in (("bare", []), ("wrapped", wrap())):
        command = [*prefix, sys.executable, "-S", "-c", LISTING, str(tmp_path / name)]
        subprocess.run(["sh", "-c", f'"$@" {closed}', "-", *command], check=True)
    assert (tmp_path / "wrapped").read_text() == (tmp_path / "bare").read_text()


@pytest.mark.parametrize(
    "locale", [{}, {"LC_ALL": "C"}, {"LANG": "de_DE.UTF-8", "EMPTY": "", "PYTHONPATH": ""}]
)
def test_the_environment_is_the_same_but_for_one_variable(locale: dict[str, str], wrap: Any) -> None:
    # In the C locale every Python sets LC_CTYPE for its children; the launcher must not.
    environment = {"PATH": os.environ["PATH"], "odd": "\udcff", **locale}
    bare, wrapped = both(wrap, ["env", "-0"], env=environment)
    lines = [sorted(one.stdout.split(b"\0")) for one in (bare, wrapped)]
    for one in lines:
        one[:] = [line for line in one if not line.startswith(b"PYTHONPATH=")]
    assert lines[0] == lines[1]
    assert b"odd=\xff" in lines[1]


@pytest.fixture(params=[[], ["--mount-proc"]], ids=["proc of another", "own proc"])
def container(request: pytest.FixtureRequest) -> list[str]:
    """Return what makes a command process 1 of a new pid namespace."""
    command = ["unshare", "-pf", *request.param]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("pid namespaces are not permitted here")
    return command


@pytest.mark.parametrize(("handler", "status"), [("trap 'exit 5' TERM;", 5), ("", 128 + signal.SIGTERM)])
def test_process_1_of_a_container_passes_the_signal_on(
    handler: str, status: int, container: list[str], wrap: Any, start: Any, wait_for: Any, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    loop = f"{handler} : > {ready}; while :; do sleep 0.05; done"
    process = start([*container, *wrap("--no-report"), "sh", "-c", loop])
    wait_for(ready.exists, "the command's start")
    (launcher,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(launcher), signal.SIGTERM)
    assert process.wait() == status


def test_killing_the_launcher_kills_the_command(
    wrap: Any, counter: Any, start: Any, wait_for: Any, state: Any
) -> None:
    process = start(wrap("--no-report") + counter.command)  # With monitors.
    counter.wait_until_ready()
    children = [
        int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]
    assert counter.pid in children
    assert len(children) == 3  # Canary and monitors.
    process.kill()
    wait_for(lambda: all(state(pid) == "Z" for pid in children), "all to be gone")
    assert process.wait() == -signal.SIGKILL


def test_the_launcher_has_one_thread_and_none_of_the_heavy_libraries(
    wrap: Any, counter: Any, start: Any
) -> None:
    process = start(wrap("--no-report") + counter.command)
    counter.wait_until_ready()
    assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    for library in ("polars", "numpy", "nvidia", "psutil"):
        assert library not in maps
    counter.end()
    process.wait()


def test_starting_the_launcher_imports_nothing_heavy() -> None:
    code = "import sys, perfwrap.cli; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for library in ("'polars'", "'numpy'", "'rich'", "'pynvml'", "'psutil'"):
        assert library not in loaded


def test_only_the_command_itself_dies_with_the_launcher(wrap: Any) -> None:
    asked = (
        "import ctypes, os; reported = ctypes.c_int(); "
        "ctypes.CDLL(None).prctl(2, ctypes.byref(reported)); print(reported.value, flush=True)"
    )
    code = f"import subprocess, sys; exec({asked!r}); subprocess.run([sys.executable, '-c', {asked!r}])"
    bare, wrapped = both(wrap, [sys.executable, "-c", code])
    assert bare.stdout.split() == [b"0", b"0"]
    assert wrapped.stdout.split() == [b"9", b"0"]
