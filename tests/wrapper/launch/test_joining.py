"""Launchers that join one run have folders of their own in it, however they race."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.launch.jobs import Job
from perfwrap.launch.joining import check, join
from perfwrap.live.live_run import LiveRun
from perfwrap.run_folder import RunFolder, create, host_name


def join_as(arguments: tuple[str, int | None]) -> tuple[str, bool]:
    place, rank = arguments
    folder, leads = join(Path(place), ["python", "train.py"], "", Job("it", rank=rank, size=16))
    (folder.path / "run.json").write_text(json.dumps({"format": 1, "part": {"leads": leads}}))
    return str(folder.path), leads


@pytest.mark.parametrize("ranks", [list(range(16)), [None] * 16])
def test_launchers_that_start_at_once_get_a_folder_each_and_one_leads(
    ranks: list[int | None], tmp_path: Path
) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        found = pool.map(join_as, [(str(tmp_path / "shared"), rank) for rank in ranks], chunksize=1)
    assert len({path for path, _ in found}) == 16
    assert sum(leads for _, leads in found) == 1
    whole = RunFolder(tmp_path / "shared")
    assert len(whole.parts()) == 16
    assert whole.read_manifest()["job"]["id"] == "it"
    assert not list((tmp_path / "shared").glob(".run.json*"))


def test_a_second_job_of_the_same_name_gets_the_next_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The ranks of two jobs, in an order in which they may well come.
    came = [0, 1, 1, 0]
    folders = [join(None, ["train.py"], "", Job("it", rank=rank, size=2))[0].path for rank in came]
    runs = [folder.parent.parent.name for folder in folders]
    assert runs == ["it-train", "it-train", "it-train-2", "it-train-2"]
    again = join(None, ["train.py"], "", Job("it", rank=0, size=2, restart=1))[0].path
    assert again.parent.parent.name == "it-train" and again.name == f"{host_name()}.rank0.start2"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    job = Job("it", rank=0, size=2)
    shared = tmp_path / "shared"
    join(shared, ["train.py"], "", job)
    with pytest.raises(PerfwrapError, match="already contains rank 0 of job it"):
        check(shared, job)
    check(shared, Job("it", rank=1, size=2))
    with pytest.raises(PerfwrapError, match="contains the run of job it, but this is job other"):
        join(shared, ["train.py"], "", Job("other", rank=1, size=2))
    with pytest.raises(PerfwrapError, match="is not empty") as refused:
        create(shared, ["train.py"])
    assert "--run-id" in refused.value.hint
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(PerfwrapError, match="is not empty"):
        check(tmp_path / "mine", job)
    single = create(tmp_path / "single", ["train.py"])
    single.write_manifest({"command": ["train.py"]})
    with pytest.raises(PerfwrapError, match="a run of one launcher"):
        check(single.path, job)


def test_ranks_that_are_started_at_once_make_one_run_and_one_report(tmp_path: Path) -> None:
    perfwrap = [
        sys.executable,
        "-m",
        "perfwrap",
        "run",
        "--no-monitors",
        "--out",
        str(tmp_path / "shared"),
        "--",
    ]
    nested = [
        sys.executable,
        "-m",
        "perfwrap",
        "run",
        "--run-id",
        "other",
        "--",
        "sh",
        "-c",
        "echo mine; exit 3",
    ]
    started = [
        subprocess.Popen(
            [*perfwrap, *(nested if rank else nested[-3:])],
            cwd=tmp_path,
            env={**os.environ, "PERFWRAP_RUN_ID": "it", **ranked(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [3, 3]
    assert [out for out, _ in outputs] == ["mine\n", "mine\n"]
    assert "Run folder:" in outputs[0][1]
    assert outputs[1][1] == ""
    whole = RunFolder(tmp_path / "shared")
    assert [part.path.name for part in whole.parts()] == [f"{host_name()}.rank{rank}" for rank in (0, 1)]
    assert whole.read_manifest()["exit"] == {"code": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]
    with pytest.raises(PerfwrapError, match="several launchers"):
        LiveRun(whole)


def ranked(rank: int) -> dict[str, str]:
    """Return what Open MPI sets for a rank."""
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
    return dict(zip(names, (str(rank), str(rank), "2"), strict=True))
