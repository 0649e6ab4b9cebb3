"""`perfwrap list`, `clean` and `open`, shell completion and colours, as a shell sees them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfwrap.commands.abandoned import is_abandoned
from perfwrap.commands.open_ import VIEWER, OneFile
from perfwrap.launch import proc
from perfwrap.run_folder import RunFolder, host_name

DAY = 86_400 * 10**9
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Make a run folder of so many days ago."""

    def make(folder: str, days: float = 0.0, ended: bool = True, **manifest: Any) -> Path:
        path = tmp_path / "perfwrap-runs" / folder
        path.mkdir(parents=True)
        moment = {"monotonic_ns": 1, "wall_ns": round(time.time_ns() - days * DAY)}
        later = {"monotonic_ns": 12 * 10**9, "wall_ns": moment["wall_ns"]} if ended else None
        content = {
            "command": ["python", "train.py"],
            "versions": {"perfwrap": "0.1"},
            "start": moment,
            "end": later,
            **manifest,
        }
        RunFolder(path).write_manifest(content)
        (path / "journal").mkdir()
        return path

    return make


def perfwrap(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "COLUMNS": "80", **variables}
    command = [sys.executable, "-m", "perfwrap", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_runs_are_listed_the_newest_last_with_what_is_known(made: Made, tmp_path: Path) -> None:
    made("20260102-b", days=1, name="tuned", tags=["bf16", "two"])
    first = made("20260101-a", days=2)
    (first / "diagnosis.json").write_text(
        '{"verdict": {"id": "data-bound"}, "steps": {"median_ns": 15300000}}'
    )
    made("20260103-c", ended=False)
    text = perfwrap(tmp_path, "list").stdout
    assert text.index("20260101-a") < text.index("tuned #bf16 #two") < text.index("20260103-c")
    assert "data-bound · 15.3 ms/step" in text
    assert "running or killed · not diagnosed" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_imported_runs_are_listed_and_removed_like_others(made: Made, tmp_path: Path) -> None:
    made("recorded", days=3)
    imported = made("imported", ended=False, start=None, imported=[{"format": "kineto"}])
    text = perfwrap(tmp_path, "list").stdout
    assert text.index("recorded") < text.index("imported")
    assert "imported · not diagnosed" in text
    assert "not ended" not in text
    assert "would delete" in perfwrap(tmp_path, "clean", "--keep", "1").stdout
    os.utime(imported / "run.json", (1, 1))
    assert "imported" in perfwrap(tmp_path, "clean", "--keep", "1", "--yes").stdout
    assert [path.name for path in imported.parent.iterdir()] == ["recorded"]


def test_runs_are_listed_for_programs_and_by_tag(made: Made, tmp_path: Path) -> None:
    made("a", tags=["x"])
    made("b")
    listed = json.loads(perfwrap(tmp_path, "list", "--format", "json", "--tag", "x").stdout)["runs"]
    assert [run["folder"] for run in listed] == ["a"]
    assert listed[0]["duration_ns"] == 12 * 10**9 - 1


def test_a_place_without_runs_is_said(tmp_path: Path) -> None:
    ended = perfwrap(tmp_path, "list")
    assert ended.returncode == 2
    assert "perfwrap run" in ended.stderr


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "perfwrap-runs").iterdir())


@pytest.mark.parametrize(
    ("words", "remain"),
    [
        (("--keep", "1"), ["new", "running"]),
        (("--older-than", "30d"), ["middle", "new", "running"]),
        (("--older-than", "2w", "--keep", "2"), ["middle", "new", "running"]),
        (("middle",), ["new", "old", "running"]),
        (("running", "old"), ["middle", "new"]),
    ],
)
def test_runs_are_removed_by_name_number_and_age_only_when_confirmed(
    made: Made, tmp_path: Path, words: tuple[str, ...], remain: list[str]
) -> None:
    made("old", days=60)
    made("middle", days=20)
    made("new")
    made("running", days=90, ended=False)
    listed = perfwrap(tmp_path, "clean", *words)
    assert "would delete" in listed.stdout
    assert left(tmp_path) == ["middle", "new", "old", "running"]
    perfwrap(tmp_path, "clean", *words, "--yes")
    assert left(tmp_path) == remain


@pytest.mark.parametrize(
    "words", [(), ("--older-than", "soon"), ("a", "--keep", "1"), ("elsewhere", "--yes"), ("gone", "--yes")]
)
def test_what_is_no_run_or_no_choice_is_never_removed(
    made: Made, tmp_path: Path, words: tuple[str, ...]
) -> None:
    made("a")
    (tmp_path / "elsewhere").mkdir()
    ended = perfwrap(tmp_path, "clean", *words)
    assert ended.returncode == 2
    assert left(tmp_path) == ["a"]
    assert (tmp_path / "elsewhere").is_dir()


@pytest.fixture
def launcher() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A process that stands for a launcher, and what its manifest says of it."""
    process = subprocess.Popen(["sleep", "600"])
    found = proc.status(process.pid)
    assert found is not None
    who = {"pid": process.pid, "start_ticks": found[1], "namespace": proc.namespace()}
    yield process, {"host": {"name": host_name()}, "launcher": who}
    process.kill()
    process.wait()


def test_a_killed_run_is_removed_once_its_processes_are_gone(
    made: Made, tmp_path: Path, launcher: tuple[subprocess.Popen[bytes], dict[str, Any]]
) -> None:
    process, manifest = launcher
    made("killed", ended=False, **manifest)
    assert "nothing to delete" in perfwrap(tmp_path, "clean", "--keep", "0").stdout
    process.kill()
    process.wait()
    # Young as it is: what was written last counts as its end.
    assert "nothing to delete" in perfwrap(tmp_path, "clean", "--older-than", "1h").stdout
    assert "deleted" in perfwrap(tmp_path, "clean", "--keep", "0", "--yes").stdout
    assert left(tmp_path) == []


@pytest.mark.parametrize("elsewhere", ["host", "namespace", "journal", "start", "worker"])
def test_a_run_that_may_go_on_where_it_cannot_be_seen_is_kept(
    made: Made, launcher: tuple[subprocess.Popen[bytes], dict[str, Any]], elsewhere: str
) -> None:
    process, manifest = launcher
    process.kill()
    process.wait()
    if elsewhere == "host":
        manifest["host"] = {"name": "another"}
    elif elsewhere == "namespace":
        manifest["launcher"]["namespace"] = "pid:[1]"
    folder = RunFolder(made("a", ended=False, **manifest))
    folder.starts.mkdir()
    own = proc.status(os.getpid())
    assert own is not None
    if elsewhere == "journal":
        (folder.journal / "another-7-7-0.pwj").touch()
    elif elsewhere == "start":
        (folder.starts / "another.log").touch()
    elif elsewhere == "worker":
        (folder.journal / f"{host_name()}-{os.getpid()}-{own[1]}-0.pwj").touch()
    assert not is_abandoned(folder, folder.read_manifest())


def test_folders_that_are_left_empty_go_too(made: Made, tmp_path: Path) -> None:
    made("demo/slow", days=2)
    for name in ("old-try", "new-try"):
        (tmp_path / "perfwrap-runs" / name).mkdir()
    an_hour_ago = time.time() - 3700
    os.utime(tmp_path / "perfwrap-runs" / "old-try", (an_hour_ago, an_hour_ago))
    perfwrap(tmp_path, "clean", "--keep", "0", "--yes")
    assert left(tmp_path) == ["new-try"]


@pytest.fixture
def made_trial(made: Made) -> Made:
    """Make the folder of a trial with two runs of so many days ago."""

    def make(folder: str, days: float = 0.0, ended: bool = True, **document: Any) -> Path:
        for name in ("01-baseline", "02-workers=4"):
            run = made(f"{folder}/{name}/run", days=days, ended=ended)
            (run.parent / "stdout.txt").touch()
        trial = run.parents[1]
        if document:
            (trial / "try.json").write_text(json.dumps(document))
        return trial

    return make


def test_a_trial_is_listed_as_one_with_what_came_of_it(made: Made, made_trial: Made, tmp_path: Path) -> None:
    made("a", days=1)
    made_trial(
        "t", days=2, best="workers=4", baseline={"median_ns": 5_000_000}, variants=[{"name": "workers=4"}]
    )
    text = perfwrap(tmp_path, "list").stdout
    assert "best workers=4 · 5 ms/step" in text
    assert text.index("t\n") < text.index("a\n")
    listed = json.loads(perfwrap(tmp_path, "list", "--format", "json").stdout)["runs"]
    assert [(run["folder"], run["tried"]) for run in listed] == [("t", ["workers=4"]), ("a", None)]


def test_what_perfwrap_fix_leaves_is_listed_with_its_patch_and_removed_as_one(
    made_trial: Made, tmp_path: Path
) -> None:
    for name, total in (("gain", {"ratio": 0.54, "low": 0.5, "high": 0.6}), ("none", None)):
        folder = made_trial(name, days=3)
        edits = [{"sentence": "Add num_workers=2."}]
        (folder / "fix.json").write_text(json.dumps({"format": 1, "total": total, "edits": edits}))
        (folder / "edit1.overlay").touch()
    for name in ("perfwrap.patch", "pull-request.md"):
        (tmp_path / "perfwrap-runs" / "gain" / name).touch()
    text = perfwrap(tmp_path, "list").stdout
    assert "patch, step time 0.54" in text
    assert "no patch" in text
    assert perfwrap(tmp_path, "clean", "gain", "none", "--yes").returncode == 0
    assert left(tmp_path) == []


def test_a_trial_is_removed_as_one_and_not_while_it_may_go_on(
    made: Made, made_trial: Made, tmp_path: Path
) -> None:
    made("a", days=1)
    made_trial("over", days=3, best=None)
    made_trial("killed", days=3)
    made_trial("between", days=0)
    made_trial("going", days=3, ended=False)
    (made("own/x/run", days=9).parents[1] / "thesis.tex").touch()
    assert perfwrap(tmp_path, "clean", "--keep", "0", "--older-than", "2d", "--yes").returncode == 0
    assert left(tmp_path) == ["a", "between", "going", "own"]
    assert perfwrap(tmp_path, "clean", "between", "--yes").returncode == 0
    assert perfwrap(tmp_path, "clean", "own", "--yes").returncode == 2
    assert left(tmp_path) == ["a", "going", "own"]


@pytest.mark.parametrize("words", [("mine",), ("--keep", "0")])
@pytest.mark.parametrize(
    "manifest",
    [
        {"format": 1, "name": "mine"},
        {"format": 1, "name": "mine", "command": ["make"], "start": {"monotonic_ns": 1, "wall_ns": 1}},
        {
            "format": 1,
            "name": "mine",
            "versions": {"perfwrap": "0.1"},
            "end": {"monotonic_ns": 1, "wall_ns": 1},
        },
    ],
)
def test_a_folder_whose_manifest_perfwrap_did_not_write_is_never_removed(
    tmp_path: Path, manifest: dict[str, Any], words: tuple[str, ...]
) -> None:
    path = tmp_path / "perfwrap-runs" / "mine"
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(manifest))
    ended = perfwrap(tmp_path, "clean", *words, "--yes")
    assert left(tmp_path) == ["mine"], ended
    assert perfwrap(tmp_path, "clean", str(path), "--yes").returncode == 2


@pytest.mark.parametrize("words", [("20260101-a",), ("--keep", "0")])
def test_a_run_with_something_else_in_its_folder_is_never_removed(
    made: Made, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (made("20260101-a", days=1) / "thesis.tex").touch()
    ended = perfwrap(tmp_path, "clean", *words, "--yes")
    assert "holds thesis.tex, which perfwrap did not put there" in ended.stdout + ended.stderr
    assert left(tmp_path) == ["20260101-a"]


@pytest.mark.parametrize("place", ["thesis.tex", "01-baseline/thesis.tex", "01-baseline/run/thesis.tex"])
def test_a_trial_with_something_else_in_its_folder_is_never_removed(
    made_trial: Made, tmp_path: Path, place: str
) -> None:
    (made_trial("t", days=3, best=None) / place).touch()
    for words in (("t",), ("--keep", "0")):
        ended = perfwrap(tmp_path, "clean", *words, "--yes")
        assert "thesis.tex, which perfwrap did not put there" in ended.stdout + ended.stderr
    assert left(tmp_path) == ["t"]


def test_a_project_that_looks_like_a_trial_is_never_removed(tmp_path: Path) -> None:
    run = tmp_path / "project" / "a" / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"format": 1, "name": "mine"}')
    (run.parent / "stdout.txt").touch()
    assert perfwrap(tmp_path, "clean", "project", "--yes").returncode == 2
    assert (run / "run.json").exists()


def test_what_perfwrap_itself_records_and_reports_can_be_removed(tmp_path: Path) -> None:
    assert perfwrap(tmp_path, "run", "--out", "r", "--", sys.executable, "-c", "pass").returncode == 0
    assert perfwrap(tmp_path, "report", "r", "--html").returncode == 0
    assert perfwrap(tmp_path, "clean", "r", "--yes").returncode == 0
    assert not (tmp_path / "r").exists()


def test_an_empty_name_removes_nothing(made: Made, tmp_path: Path) -> None:
    only = made("20260101-a")
    ended = perfwrap(tmp_path, "clean", "", "--yes")
    assert ended.returncode == 2
    assert "empty" in ended.stderr
    assert only.exists()


@pytest.mark.parametrize("words", [("--keep", "0"), ("link",)])
def test_what_links_lead_to_is_never_removed(made: Made, tmp_path: Path, words: tuple[str, ...]) -> None:
    run = made("20260101-a")
    others = tmp_path / "others"
    others.mkdir()
    kept = run.rename(others / "kept")
    (run.parent / "link").symlink_to(kept)
    (run.parent / "links").symlink_to(others)
    ended = perfwrap(tmp_path, "clean", *words, "--yes")
    assert (kept / "run.json").exists(), ended
    assert "None" not in ended.stderr


def test_a_run_may_be_named_twice(made: Made, tmp_path: Path) -> None:
    run = made("20260101-a")
    assert perfwrap(tmp_path, "clean", "20260101-a", "latest", "--yes").returncode == 0
    assert not run.exists()


def test_the_file_that_would_be_opened_is_named(made: Made, tmp_path: Path) -> None:
    run = made("a")
    missing = perfwrap(tmp_path, "open", "--path")
    assert missing.returncode == 2
    assert "perfwrap report" in missing.stderr
    (run / "trace.json.gz").write_bytes(b"x")
    assert perfwrap(tmp_path, "open", "--path").stdout.strip() == str(run / "trace.json.gz")
    (run / "report.html").write_bytes(b"x")
    assert perfwrap(tmp_path, "open", "a", "--path").stdout.strip() == str(run / "report.html")
    assert perfwrap(tmp_path, "open", "--trace", "--path").stdout.strip() == str(run / "trace.json.gz")


def test_a_trace_is_served_to_perfettos_page_and_nothing_else_is(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    with OneFile(file, 0) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        server.timeout = 60
        answered = threading.Thread(target=lambda: [server.wait() for _ in range(3)])
        answered.start()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{address}/secret", timeout=60)
        with pytest.raises(urllib.error.HTTPError):  # another user of the machine, who knows how it works
            urllib.request.urlopen(f"{address}/trace.json.gz", timeout=60)
        assert not server.served
        with urllib.request.urlopen(f"{address}{server.place}", timeout=60) as answer:
            assert answer.read() == b"content"
            assert answer.headers["Access-Control-Allow-Origin"] == VIEWER
        answered.join(60)
        assert server.served


def test_a_trace_is_not_served_to_another_name_nor_held_up_by_silence(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(b"content")
    with OneFile(file, 0) as server, socket.create_connection(("127.0.0.1", server.server_port)):
        address = f"http://127.0.0.1:{server.server_port}{server.place}"
        server.timeout = 60
        answered = threading.Thread(target=lambda: [server.wait() for _ in range(3)])
        answered.start()
        asked = urllib.request.Request(address, headers={"Host": f"evil.example:{server.server_port}"})
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(asked, timeout=60)
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.read() == b"content"
        answered.join(60)


def test_the_shell_completes_the_names_of_runs(made: Made, tmp_path: Path) -> None:
    made("20260101-train", name="tuned")
    script = Path(sys.executable).with_name("perfwrap")  # whose name the shell knows, not the module's
    asked = {"_PERFWRAP_COMPLETE": "complete_bash", "COMP_WORDS": "perfwrap report tu", "COMP_CWORD": "2"}
    ended = subprocess.run(
        [script], capture_output=True, text=True, cwd=tmp_path, env={"PATH": os.environ["PATH"], **asked}
    )
    assert ended.stdout.split() == ["tuned"]


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_honoured(made: Made, tmp_path: Path, variables: dict[str, str], coloured: bool) -> None:
    made("a", name="tuned", tags=["x"])
    text = perfwrap(tmp_path, "list", FORCE_COLOR="1", TERM="xterm-256color", **variables).stdout
    assert "tuned" in text
    assert ("\x1b[36m" in text) is coloured
