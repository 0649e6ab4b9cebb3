from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from perfwrap.commands import COMMANDS
from perfwrap.reports.terminal.explanation import HEADINGS
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id
from perfwrap.sources import files


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
    page, untouched = tmp_path / "page.md", tmp_path / "untouched.md"
    page.write_text("before\n<!-- rules -->\nold\n<!-- /rules -->\nafter\n")
    untouched.write_text("nothing that is generated\n")
    monkeypatch.setattr(update_docs, "PAGES", (page, untouched))
    monkeypatch.setattr(sys, "argv", ["update_docs.py", "--check"])
    assert update_docs.main() == 1
    shown = capsys.readouterr().out
    assert "-old" in shown
    assert "untouched" not in shown
    assert "old" in page.read_text()
    monkeypatch.setattr(sys, "argv", ["update_docs.py"])
    assert update_docs.main() == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- rules -->\n| group | rule |")
    assert text.endswith("<!-- /rules -->\nafter\n")
    assert all(f"`{rule_id(rule)}`" in text for rule in RULES)
    monkeypatch.setattr(sys, "argv", ["update_docs.py", "--check"])
    assert update_docs.main() == 0


def test_every_format_of_other_tools_is_described_by_its_reader(update_docs: ModuleType) -> None:
    rows = update_docs.formats().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(files.formats())
    assert all(row.count("|") == 3 and "| Reads " in row and row.endswith(". |") for row in rows)


def test_every_rule_has_its_page_in_one_group(update_docs: ModuleType) -> None:
    names = [rule_id(rule) for rule in RULES]
    grouped = [rule_id(rule) for rules in update_docs.groups().values() for rule in rules]
    assert sorted(grouped) == sorted(names)
    text = update_docs.pages()
    assert all(text.count(f"### `{name}`\n") == 1 for name in names)
    assert all(text.count(f"**{heading}.** ") == len(names) for heading in HEADINGS)
    assert "`min_spread = 1.5`" in text


def test_every_command_and_its_options_are_described(update_docs: ModuleType) -> None:
    text = update_docs.commands()
    assert all(f"`perfwrap {command.name}" in text for command in COMMANDS)
    assert "| `--out" in text
    assert "## `perfwrap report [RUN]`" in text


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
