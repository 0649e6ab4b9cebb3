from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from perfwrap.commands import COMMANDS
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id


@pytest.fixture(scope="module")
def update_docs() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts" / "update_docs.py"
    spec = importlib.util.spec_from_file_location("update_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stale_parts_are_shown_and_renewed(
    update_docs: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- rules -->\nold\n<!-- /rules -->\nafter\n")
    monkeypatch.setattr(update_docs, "README", readme)
    monkeypatch.setattr(sys, "argv", ["update_docs.py", "--check"])
    assert update_docs.main() == 1
    assert "-old" in capsys.readouterr().out
    assert "old" in readme.read_text()
    monkeypatch.setattr(sys, "argv", ["update_docs.py"])
    assert update_docs.main() == 0
    text = readme.read_text()
    assert text.startswith("before\n<!-- rules -->\n| rule |")
    assert text.endswith("<!-- /rules -->\nafter\n")
    assert all(f"`{rule_id(rule)}`" in text for rule in RULES)
    monkeypatch.setattr(sys, "argv", ["update_docs.py", "--check"])
    assert update_docs.main() == 0


def test_every_command_and_its_options_are_described(update_docs: ModuleType) -> None:
    text = update_docs.commands()
    assert all(f"`perfwrap {name}" in text for name, _, _ in COMMANDS)
    assert "| `--out" in text
    assert "#### `perfwrap report [RUN]`" in text


def test_measured_costs_become_the_table_that_the_measurement_prints(
    update_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setattr(update_docs, "COSTS", tmp_path / "overhead.json")
    assert "Not measured yet" in update_docs.costs()
    ratio = {"median": 0.013, "low": 0.009, "high": 0.018}
    loop = {
        "step_ns": 310_000,
        "ratios": {"bare again": {**ratio, "median": 0.001}, "perfwrap run": ratio},
        "monitors_share": 0.007,
        "target": 0.05,
    }
    start = {"median_ms": 0.4, "low_ms": 0.3, "high_ms": 0.6}
    (tmp_path / "overhead.json").write_text(json.dumps({"loops": {"0.3": loop}, "start_up": start}))
    monkeypatch.syspath_prepend(str(repository / "scripts"))
    text = update_docs.costs()
    assert "| 0.31 ms |" in text
    assert "+1.3%" in text
    assert "0.40 ms" in text


def test_a_marker_that_nothing_generates_is_refused(update_docs: ModuleType) -> None:
    with pytest.raises(SystemExit, match="surprises"):
        update_docs.renewed("<!-- surprises -->\n<!-- /surprises -->\n")
