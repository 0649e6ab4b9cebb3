from __future__ import annotations

import json
import os
from pathlib import Path

from perfwrap.live.stalls import current_stall


def write(folder: Path, number: int, **told: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"here-{number}.json"
    path.write_text(json.dumps({"sentence": f"stall {number}", "ended": None, **told}))
    os.utime(path, ns=(number, number))
    return path


def test_only_a_stall_that_goes_on_is_told_with_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "stalls"
    assert current_stall(folder) is None
    write(folder, 1)
    write(folder, 2, ended={"how": "steps went on"})
    assert current_stall(folder) == "stall 1; stacks: stalls/here-1.json"
    write(folder, 1, ended={"how": "the command ended"})
    assert current_stall(folder) is None


def test_a_file_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    write(tmp_path / "stalls", 1).write_text("{")
    assert current_stall(tmp_path / "stalls") is None
