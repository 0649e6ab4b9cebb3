from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.rules.loop import checkpoint_stall as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, save: float, every: int = 5, steps: int = 40) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("save", save, "", 3 << 20, 40)


def test_frequent_saving_is_found_with_a_better_rhythm(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, save=50)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.05)
    assert str(finding.location) == "train.py:40"
    assert "instead of every 5" in finding.advice
    assert "Save every 500 steps" in finding.advice
    assert "3 MiB each" in finding.evidence[0]


def test_rare_saving_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, save=1, every=20)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, save=50)
    journal = loop.journal
    journal.describe(
        "COVERAGE", "probe/serialization", journal.text("it failed"), start=journal.now, duration=1
    )
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["checkpoint_stall"]
    assert outcome.state == "not checked"


SOURCE = (
    "\n" * 38
    + "def keep(state, path):\n    torch.save(state, path)\n    {behind}\n\n\ndef other(): os.remove('x')\n"
)


def write_moving(loop: Any, folder: Path, behind: str) -> None:
    loop.run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(folder)})
    (folder / "train.py").write_text(SOURCE.format(behind=behind))
    for step in range(60):
        if step % 5 == 4:
            loop.span("save", 20, "torch.save", 3 << 20, 40)
            loop.python(30)
        loop.compute()


def test_what_is_done_with_files_behind_a_save_belongs_to_it(
    loop: Any, find: Callable[[Rule], Finding], tmp_path: Path
) -> None:
    write_moving(loop, tmp_path, "os.replace(path, path + '.old')")
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.03)
    assert "The code right after it takes another 30 ms each time; it calls os.replace." in finding.evidence


def test_other_code_behind_a_save_is_not_claimed(
    loop: Any, find: Callable[[Rule], Finding], tmp_path: Path
) -> None:
    write_moving(loop, tmp_path, "state = count(state)")
    finding = find(rule)
    assert finding.share == pytest.approx(0.2, abs=0.02)
    assert len(finding.evidence) == 1
