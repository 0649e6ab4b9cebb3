from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from perfwrap.edits import EDITS
from perfwrap.edits.outcome import Edited

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "fixes"))
import fuzz_edits

PROGRAM = """
import gc
from torch.utils.data import DataLoader

loader = DataLoader([1, 2])
for x in loader:
    gc.collect()
    print(x)
"""


def test_each_edit_has_a_pattern_of_its_lines() -> None:
    assert set(fuzz_edits.OWN) == set(EDITS)


def test_edits_of_a_program_have_no_faults(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    counts: Counter[str] = Counter()
    assert fuzz_edits.try_file(tmp_path / "train.py", list(EDITS), random.Random(1), counts) == []
    assert (
        counts["loader_options: edited"]
        and counts["cleanup_calls: edited"]
        and counts["rare_logging: edited"]
    )


@pytest.mark.parametrize(
    ("text", "sentence", "fault"),
    [
        (PROGRAM, "Same.", "nothing changed"),
        (PROGRAM + "x = (", "Broken.", "does not parse"),
        (PROGRAM + "return", "No module.", None),
        (PROGRAM + "x = 1\r\n", "Ends.", "other line endings"),
        ("y = 1\n" * 20 + PROGRAM, "Many.", "20 lines changed"),
        (PROGRAM + "x = 1\n", "no stop", "no sentence"),
        (PROGRAM + "x = 1\n", "Good.", None),
    ],
)
def test_a_fault_is_seen(text: str, sentence: str, fault: str | None) -> None:
    found = fuzz_edits.find_fault("cleanup_calls", PROGRAM, Edited(text, sentence), True)
    assert (found or "").startswith(fault or "") and (found is None) == (fault is None)


def test_files_of_folders_and_bare_repositories_are_chosen(tmp_path: Path) -> None:
    for name in ("work", "folder", "into"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "train.py").write_text(PROGRAM)
    (tmp_path / "folder" / "other.py").write_text("x = 1\n")
    git = ["git", "-C", tmp_path / "work", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", tmp_path / "work", tmp_path / "bare"], check=True)
    chosen = fuzz_edits.choose([tmp_path / "bare", tmp_path / "folder"], 60, 1, tmp_path / "into")
    assert sorted(path.read_text() for path in chosen) == sorted([PROGRAM, "x = 1\n"])
