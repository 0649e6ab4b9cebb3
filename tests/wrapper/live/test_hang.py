from __future__ import annotations

import json
import os
from pathlib import Path

from perfwrap.live.hang import current_stall


def write(folder: Path, number: int, **reported: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"here-{number}.json"
    path.write_text(json.dumps({"sentence": f"stall {number}", "ended": None, **reported}))
    os.utime(path, ns=(number, number))
    return path


def test_only_a_continuing_stall_is_reported_with_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "stalls"
    assert current_stall(folder) is None
    write(folder, 1)
    write(folder, 2, ended={"how": "steps resumed"})
    assert current_stall(folder) == "stall 1; stacks: stalls/here-1.json"
    write(folder, 1, ended={"how": "the command ended"})
    assert current_stall(folder) is None


def test_a_file_that_cannot_be_read_gives_nothing(tmp_path: Path) -> None:
    write(tmp_path / "stalls", 1).write_text("{")
    assert current_stall(tmp_path / "stalls") is None
