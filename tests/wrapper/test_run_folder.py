from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder

SECOND = 1_000_000_000


def create(_: int) -> str:
    return str(run_folder.create(None, ["python", "train.py"]).path)


def test_many_runs_that_start_at_once_get_a_folder_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with multiprocessing.get_context("fork").Pool(8) as pool:
        paths = pool.map(create, range(40), chunksize=1)
    assert len(set(paths)) == 40
    assert all(Path(path).stat().st_mode & 0o777 == 0o700 for path in paths)
    assert all("-train" in Path(path).name for path in paths)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-m", "package.tool"], "python"),
        (["torchrun", "--nproc-per-node", "2", "some/where/train.py", "--x"], "train"),
        (["./run me.sh"], "run_me"),
        (["/usr/bin/env", "…"], "env"),
        (["..."], "run"),
    ],
)
def test_the_name_is_that_of_the_script_or_the_program(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_folder.create(None, command).path.name.split("-", 2)[2] == name


def test_a_folder_in_use_is_refused_and_an_empty_one_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    assert run_folder.create(tmp_path / "empty", ["x"]).path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(PerfwrapError, match="is not empty"):
        run_folder.create(tmp_path / "empty", ["x"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PerfwrapError, match=str(tmp_path / "file" / "run")):
        run_folder.create(tmp_path / "file" / "run", ["x"])
    with pytest.raises(PerfwrapError, match="Cannot create"):
        run_folder.create_parent(tmp_path / "file" / "run", "demo")


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = run_folder.create(tmp_path / "run", ["x"])
    folder.write_manifest({"command": ["x", "\udcff"]})
    assert folder.read_manifest() == {"format": run_folder.OF_ONE_LAUNCHER, "command": ["x", "\udcff"]}
    assert [path.name for path in folder.path.iterdir() if path.is_file()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a run folder"),
        ("{", "Cannot read"),
        ("[]", "is not a perfwrap manifest"),
        ('{"format": "1"}', "is not a perfwrap manifest"),
        (f'{{"format": {run_folder.FORMAT + 1}}}', "newer perfwrap"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_the_reason(
    text: str | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / run_folder.MANIFEST).write_text(text)
    with pytest.raises(PerfwrapError, match=message):
        RunFolder(tmp_path).read_manifest()


def test_two_places_for_several_runs_are_two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_folder.create_parent(None, "demo") != run_folder.create_parent(None, "demo")
    assert len(list(Path("perfwrap-runs").glob("*-demo*"))) == 2


def started(
    rank: int, restart: int, clock: str, begin: int, end: int | None, exit: dict[str, int]
) -> dict[str, Any]:
    """Return what a launcher says: clocks of different machines differ by a thousand seconds."""
    boot = 1_000 * SECOND * int(clock)
    return {
        "part": {"job": "it", "rank": rank, "restart": restart, "leads": rank == 0},
        "host": {"name": f"node{clock}", "clock": clock},
        "start": {"monotonic_ns": boot + begin * SECOND, "wall_ns": begin * SECOND},
        "end": None if end is None else {"monotonic_ns": boot + end * SECOND, "wall_ns": end * SECOND},
        "exit": exit,
    }


@pytest.mark.parametrize(("clock", "end", "seconds"), [("1", 90, 90), ("2", 90, 90), ("1", None, None)])
def test_of_ranks_that_were_restarted_the_last_start_says_how_the_run_ended(
    clock: str, end: int | None, seconds: int | None, tmp_path: Path
) -> None:
    whole = RunFolder(tmp_path)
    whole.write_manifest({"job": {"id": "it"}})
    launchers = {
        "rank0": started(0, 0, "1", 10, 31, {"signal": 15}),
        "rank1": started(1, 0, "1", 10, 30, {"code": 1}),
        "rank0.start2": started(0, 1, clock, 42, end, {"code": 0}),
        "rank1.start2": started(1, 1, "1", 41, 90, {"code": 0}),
    }
    for name, manifest in launchers.items():
        part = RunFolder(tmp_path / run_folder.PARTS / name)
        part.path.mkdir(parents=True)
        part.write_manifest(manifest)
    run = whole.read_manifest()
    assert run["exit"] == {"code": 0}
    assert run["start"] == launchers["rank0"]["start"]
    assert (run["end"] and run["end"]["monotonic_ns"]) == (seconds and 1_000 * SECOND + seconds * SECOND)
    assert [node["exit"] for node in run["nodes"]].count({"code": 0}) == 2
