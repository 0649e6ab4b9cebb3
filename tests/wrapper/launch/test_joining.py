"""Launchers that join one run have folders of their own in it, however they race."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.launch.jobs import Job
from perfwrap.launch.joining import check, join
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
    with pytest.raises(PerfwrapError, match="has rank 0 of job it already"):
        check(shared, job)
    check(shared, Job("it", rank=1, size=2))
    with pytest.raises(PerfwrapError, match="holds the run of job it, and this is job other"):
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
