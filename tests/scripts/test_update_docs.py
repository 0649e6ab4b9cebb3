from __future__ import annotations

import importlib.util
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
    assert "#### `perfwrap report RUN`" in text


def test_a_marker_that_nothing_generates_is_refused(update_docs: ModuleType) -> None:
    with pytest.raises(SystemExit, match="surprises"):
        update_docs.renewed("<!-- surprises -->\n<!-- /surprises -->\n")
