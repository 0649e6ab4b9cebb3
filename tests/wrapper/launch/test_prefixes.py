"""Tools before the command: it keeps its output, signals and exit status, and the tool's files are put right."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.launch import nsys, prefixes
from perfwrap.launch.options import Options
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.roofline import roofline
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

STAND_IN = Path(__file__).resolve().parents[2] / "samples" / "stand_in_tools.py"
PROGRAM = [
    sys.executable,
    "-c",
    "import sys; print('mine', sys.stdin.read()); print('also mine', file=sys.stderr); sys.exit(3)",
]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put stand-ins for nsys and ncu on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("nsys", "ncu"):
        shutil.copy(STAND_IN, folder / name)
        (folder / name).chmod(0o755)
    monkeypatch.setenv(
        "PATH", f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    return folder


def run(prefix: list[str], command: list[str] = PROGRAM, **settings: Any) -> Any:
    return subprocess.run([*prefix, *command], capture_output=True, text=True, input="given", **settings)


def folder_of(prefix: list[str]) -> RunFolder:
    return RunFolder(Path(prefix[prefix.index("--out") + 1]))


@pytest.fixture
def nsys_run(wrap: Any, tools: Path) -> list[str]:
    return list(wrap("--no-monitors", "--no-report", "--nsys"))


def options_of(prefix: list[str]) -> Any:
    """Return what the stand-in for ncu was given."""
    return json.loads((folder_of(prefix).path / "tools" / "ncu.csv.options").read_text())


@pytest.mark.parametrize("tool", ["--nsys", "--ncu=--launch-skip=0"])
@pytest.mark.parametrize("trouble", ["", "apart"])
def test_the_command_keeps_its_streams_and_its_exit_code(
    wrap: Any, tools: Path, monkeypatch: pytest.MonkeyPatch, tool: str, trouble: str
) -> None:
    monkeypatch.setenv("STAND_IN", trouble)
    prefix = wrap(
        "--no-monitors", "--no-report", *([tool] if tool == "--nsys" else ["--ncu-from", earlier(wrap), tool])
    )
    answer = run(prefix)
    assert (answer.returncode, answer.stdout) == (3, "mine given\n")
    mine, said = answer.stderr.splitlines()
    assert mine == "also mine"
    assert said.startswith("perfwrap: recorded in ")


def earlier(wrap: Any) -> str:
    """Record a run with kernels and return its folder."""
    prefix = wrap("--no-monitors", "--no-report", "--nsys")
    run(prefix)
    return str(folder_of(prefix).path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_that_a_signal_ends_is_seen_to_end_by_it(nsys_run: list[str], number: int) -> None:
    answer = run(nsys_run, [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})"])
    assert answer.returncode == -number


@pytest.mark.parametrize("trouble", ["", "apart"])
def test_a_signal_to_the_launcher_reaches_the_command_once(
    nsys_run: list[str], start: Any, counter: Any, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("STAND_IN", trouble)
    process = start(nsys_run + counter.command)
    counter.wait_until_ready()
    process.send_signal(signal.SIGUSR1)
    counter.wait_until_seen("USR1")
    process.send_signal(signal.SIGTERM)
    assert counter.wait_until_seen("TERM") == ["USR1", "TERM"]
    counter.end()
    assert process.wait() == 7


@pytest.mark.parametrize("trouble", ["", "apart"])
def test_ctrl_c_reaches_the_command_once(
    nsys_run: list[str], terminal: Any, counter: Any, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("STAND_IN", trouble)
    session = terminal(nsys_run + counter.command)
    counter.wait_until_ready()
    session.send("\x03")
    assert counter.wait_until_seen("INT") == ["INT"]
    counter.end()
    assert os.waitstatus_to_exitcode(session.wait()) == 7
    assert counter.lines()[1:] == ["INT"]


def test_the_command_is_in_the_launchers_group_and_on_its_terminal(
    nsys_run: list[str], terminal: Any
) -> None:
    script = "import os; print(os.isatty(0), os.isatty(1), os.tcgetpgrp(0) == os.getpgid(0), 'end')"
    session = terminal([*nsys_run, sys.executable, "-c", script])
    session.expect("True True True end")


def test_the_command_dies_with_the_launcher(
    nsys_run: list[str], start: Any, counter: Any, wait_for: Any, state: Any
) -> None:
    process = start(nsys_run + counter.command)
    counter.wait_until_ready()
    process.kill()
    wait_for(lambda: state(counter.pid) in "ZX", "the command's end")


def test_a_tool_that_dies_leaves_the_command_running_to_its_end(
    nsys_run: list[str],
    start: Any,
    counter: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wait_for: Any,
) -> None:
    monkeypatch.setenv("STAND_IN", "dies")
    monkeypatch.setenv("STAND_IN_UNTIL", str(tmp_path / "now"))
    process = start(nsys_run + counter.command, stderr=subprocess.PIPE)
    counter.wait_until_ready()
    (tmp_path / "now").touch()
    wait_for(lambda: "nsys" not in children(process.pid), "the tool's end")
    process.send_signal(signal.SIGTERM)
    assert counter.wait_until_seen("TERM") == ["TERM"]
    counter.end()
    said = process.communicate()[1].decode()
    assert process.returncode == 7
    assert "captured nothing" in said


def children(pid: int) -> str:
    """Return the command lines of a process's children."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = []
    for child in found:
        try:
            lines.append(Path(f"/proc/{child}/cmdline").read_text())
        except OSError:
            continue
    return "\n".join(line for line in lines if "profile" in line)


def test_a_tool_that_does_not_start_the_command_costs_only_itself(
    nsys_run: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "fails")
    answer = run(nsys_run)
    assert (answer.returncode, answer.stdout) == (3, "mine given\n")
    assert "perfwrap: nsys is not profiling this run: it exited before the command started" in answer.stderr
    assert "terminated before it began" in answer.stderr


def test_an_option_that_the_tool_does_not_know_costs_only_the_tool(wrap: Any, tools: Path) -> None:
    prefix = wrap("--no-monitors", "--no-report", "--nsys=--no-such-option=1")
    answer = run(prefix)
    assert (answer.returncode, answer.stdout) == (3, "mine given\n")
    assert "unrecognised option '--no-such-option=1'" in answer.stderr


def test_a_command_that_cannot_be_executed_ends_as_in_a_shell(nsys_run: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    answer = run(nsys_run, [str(script)])
    assert answer.returncode == 127
    assert "No such file or directory" in answer.stderr


@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_a_tool_that_is_missing_is_said_before_the_run_with_how_to_install_it(
    wrap: Any, tmp_path: Path, name: str
) -> None:
    prefix = wrap(
        "--no-monitors", "--no-report", f"--{name}", *(["--ncu-from", "none"] if name == "ncu" else [])
    )
    answer = run(prefix, env={**os.environ, "PATH": str(tmp_path)})
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"{name} is not on PATH" in answer.stderr
    assert "CUDA toolkit" in answer.stderr
    assert not folder_of(prefix).path.exists()


@pytest.mark.parametrize(
    ("tool", "trouble", "lacks"),
    [("nsys", "old", "--capture-range-end"), ("ncu", "old", "--kernel-name-base")],
)
def test_a_tool_that_is_too_old_is_said_before_the_run(
    wrap: Any, tools: Path, monkeypatch: pytest.MonkeyPatch, tool: str, trouble: str, lacks: str
) -> None:
    more = ["--ncu-from", earlier(wrap)] if tool == "ncu" else []
    monkeypatch.setenv("STAND_IN", trouble)
    prefix = wrap("--no-monitors", "--no-report", f"--{tool}", *more)
    answer = run(prefix)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"The installed {tool} 2020.3.4.32 has no {lacks}" in answer.stderr
    assert "or newer" in answer.stderr
    assert not folder_of(prefix).path.exists()


@pytest.mark.parametrize(
    ("tool", "lacks"), [("nsys", "has no --cpuctxsw"), ("ncu", "lacks SpeedOfLight_RooflineChart")]
)
def test_what_a_tool_lacks_is_left_out_and_said(
    wrap: Any, tools: Path, monkeypatch: pytest.MonkeyPatch, tool: str, lacks: str
) -> None:
    more = ["--ncu-from", earlier(wrap)] if tool == "ncu" else []
    monkeypatch.setenv("STAND_IN", "older")
    answer = run(wrap("--no-monitors", "--no-report", f"--{tool}", *more))
    assert (answer.returncode, answer.stdout) == (3, "mine given\n")
    assert f"perfwrap: the installed {tool} 2020.3.4.32 {lacks}" in answer.stderr.splitlines()[0]
    assert "not profiling" not in answer.stderr


@pytest.mark.parametrize(
    ("trouble", "has"), [("", True), ("older", False), ("dumb", False)], ids=["new", "old", "without help"]
)
def test_newer_options_are_used_where_the_tool_has_them(
    tools: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, has: bool
) -> None:
    monkeypatch.setenv("STAND_IN", trouble)
    said: list[str] = []
    tool = prefixes.choose(Options(nsys=("--trace=cuda",)), dict(os.environ), said.append)
    assert tool is not None
    words = tool.words(Path("/tools"))
    assert ("--cuda-event-trace=false" in words) is has
    assert ("--discard-environment=true" in words) is has
    assert "--capture-range-end=stop" in words
    assert bool(said) is (trouble == "older")


def test_the_users_value_of_a_newer_option_is_kept(tools: Path) -> None:
    tool = prefixes.choose(Options(nsys=("--cuda-event-trace=true",)), dict(os.environ), print)
    assert tool is not None
    assert [word for word in tool.words(Path("/tools")) if "event-trace" in word] == [
        "--cuda-event-trace=true"
    ]


def test_both_tools_at_once_are_refused() -> None:
    with pytest.raises(PerfwrapError, match="exclude each other"):
        prefixes.choose(Options(nsys=(), ncu=()), dict(os.environ))


def test_without_a_tool_nothing_is_before_the_command() -> None:
    assert prefixes.choose(Options(), dict(os.environ)) is None


def test_the_capture_is_read_on_the_runs_clock(nsys_run: list[str]) -> None:
    run(nsys_run)
    folder = folder_of(nsys_run)
    timeline = run_journals.read(folder)
    manifest = folder.read_manifest()
    kernels = timeline.spans.filter(timeline.spans["category"] == "kernel")
    assert kernels["name"].to_list()[0] == "void at::native::gemm<float, (int)3>(float*, int)"
    assert manifest["start"]["monotonic_ns"] < kernels["start"][0]
    assert kernels["start"][0] < manifest["end"]["monotonic_ns"] + 1_000_000


def test_nothing_that_is_kept_holds_the_environments_values(nsys_run: list[str]) -> None:
    run(nsys_run)
    kept = [path for path in folder_of(nsys_run).path.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"hunter2" in path.read_bytes()]
    export = folder_of(nsys_run).path / "tools" / "nsys.sqlite"
    connection = sqlite3.connect(export)
    assert connection.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [
        ("(redacted)",),
        ("Linux",),
    ]
    assert ('MY_TOKEN="***"',) in connection.execute("SELECT value FROM META_DATA_CAPTURE").fetchall()
    assert not (export.parent / "nsys.nsys-rep").exists()


def test_an_export_that_cannot_be_redacted_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / nsys.REPORT).touch()

    def export(words: list[str]) -> int:
        (tmp_path / nsys.EXPORT).write_bytes(b"SQLite format 3\0 hunter2" + bytes(5_000))
        return 0

    (problem,) = nsys.Nsys(()).finish(tmp_path, export)
    assert "was deleted" in problem
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trouble", "words"), [("nothing", "captured nothing"), ("broken", "could not export")]
)
def test_a_tool_that_wrote_nothing_is_said_and_the_run_is_whole(
    nsys_run: list[str], monkeypatch: pytest.MonkeyPatch, trouble: str, words: str
) -> None:
    monkeypatch.setenv("STAND_IN", trouble)
    answer = run(nsys_run)
    assert (answer.returncode, answer.stdout) == (3, "mine given\n")
    assert words in answer.stderr


def test_the_users_options_take_the_place_of_perfwraps(wrap: Any) -> None:
    words = nsys.Nsys(("--trace=cuda", "-scpu", "--wait=all", "--cuda-graph-trace=node")).words(
        Path("/tools")
    )
    assert "--trace=cuda" in words
    assert not [word for word in words if word.startswith(("--trace=cuda,", "--sample", "--wait=primary"))]
    assert words[-1] == "--output=/tools/nsys.nsys-rep"


@pytest.mark.parametrize("option", ["--capture-range=none", "-ccudaProfilerApi"])
def test_without_our_range_there_are_none_of_its_options(option: str) -> None:
    # nsys refuses them then.
    words = nsys.Nsys((option,)).words(Path("/tools"))
    assert [word for word in words if "range" in word or "nvtx-" in word or word == option] == [option]


def test_the_users_options_are_taken_apart_and_the_commands_own_are_not(wrap: Any, tools: Path) -> None:
    prefix = wrap("--no-monitors", "--no-report", "--nsys=--trace=cuda --cuda-graph-trace=node")
    answer = run(prefix, [sys.executable, "-c", "import sys; print(sys.argv)", "--nsys=mine"])
    assert answer.stdout == "['-c', '--nsys=mine']\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [("--nsys=report", "is not an option"), ("--nsys=--output=x", "itself"), ("--nsys='", "Cannot parse")],
)
def test_options_that_cannot_be_passed_on_are_refused(
    wrap: Any, tools: Path, options: str, words: str
) -> None:
    answer = run(wrap("--no-monitors", "--no-report", options))
    assert answer.returncode == 2
    assert words in answer.stderr


def test_ncu_measures_the_kernels_that_took_longest_in_an_earlier_run(wrap: Any, tools: Path) -> None:
    prefix = wrap("--no-monitors", "--no-report", "--ncu", "--ncu-from", earlier(wrap))
    run(prefix)
    assert options_of(prefix)["--kernel-name"] == "regex:^(gemm|Kernel)$"
    assert options_of(prefix)["--launch-count"] == "6"
    timeline = run_journals.read(folder_of(prefix))
    assert any("slower than usual" in warning for warning in timeline.warnings)
    found = roofline(Evidence(timeline))
    assert found.select("kernel", "bound").rows() == [("gemm(float *, int)", "memory")]


def test_kernels_that_the_user_names_need_no_earlier_run(wrap: Any, tools: Path) -> None:
    prefix = wrap("--no-monitors", "--no-report", "--ncu=--kernel-name=regex:gemm --launch-count=1")
    run(prefix)
    assert options_of(prefix)["--kernel-name"] == "regex:gemm"
    assert options_of(prefix)["--launch-count"] == "1"


def test_ncu_wants_a_run_that_says_which_kernels(wrap: Any, tools: Path) -> None:
    plain = wrap()
    run(plain)
    answer = run(wrap("--no-report", "--ncu", "--ncu-from", str(folder_of(plain).path)))
    assert answer.returncode == 2
    assert "has no kernels" in answer.stderr
    assert "perfwrap run --nsys" in answer.stderr


@pytest.mark.parametrize(
    ("trouble", "words"), [("forbidden", "administrator"), ("nothing", "measured nothing")]
)
def test_counters_that_may_not_be_read_are_said_with_the_cure(
    wrap: Any, tools: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, words: str
) -> None:
    before = earlier(wrap)
    monkeypatch.setenv("STAND_IN", trouble)
    answer = run(wrap("--no-monitors", "--no-report", "--ncu", "--ncu-from", before))
    assert (answer.returncode, answer.stdout) == (3, "mine given\n")
    assert words in answer.stderr
