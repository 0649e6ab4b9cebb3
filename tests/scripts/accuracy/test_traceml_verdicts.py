from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture
def traceml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS / "accuracy"))
    return importlib.import_module("traceml_verdicts")


@pytest.mark.parametrize("narrow", [False, True])
def test_every_workload_is_edited_or_listed_with_the_reason(
    traceml: ModuleType, tmp_path: Path, narrow: bool
) -> None:
    scripts = traceml.workloads(tmp_path)
    assert {script.stem for script in scripts} >= set(traceml.NOT_EDITED)
    for script in scripts:
        if script.stem in traceml.NOT_EDITED:
            continue
        text = traceml.edited(script, narrow)
        (step,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.With) and _traces(node)]
        inside = "\n".join(ast.unparse(statement) for statement in step.body)
        assert "step(" in inside or "update(" in inside, script.stem
        # Either TraceML sees the loader's batches by itself, or the loop's own source was wrapped.
        assert ("traceml.wrap_dataloader_fetch(" in text) or "DataLoader(" in text, script.stem
        assert text.count("traceml.init(") == 1, script.stem


def test_every_label_says_which_diagnosis_would_be_right(traceml: ModuleType, tmp_path: Path) -> None:
    for script in traceml.workloads(tmp_path):
        label = traceml.read_label(script)
        assert {label.expected, *label.also} - {"healthy"} <= set(traceml.RIGHT), script.stem


def test_figures_of_perfwrap_are_read_from_what_accuracy_prints(
    traceml: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracy = importlib.import_module("accuracy")
    label = accuracy.Label("gc_pause", frozenset(), frozenset(), held_out=True)
    found = [{"rule": "slow_steps", "share": 0.3, "location": None, "severity": "major"}]
    found.append({**found[0], "rule": "gc_pause", "share": 0.1})
    accuracy.show(accuracy.Result(Path("gc_one.py"), label, found, "interpreter_bound"))
    accuracy.show(accuracy.Result(Path("gc_two.py"), label, [], "unknown"))
    printed = tmp_path / "accuracy.txt"
    printed.write_text(capsys.readouterr().out)
    assert traceml.read_perfwrap(printed) == {
        "gc_one": (True, ["slow_steps", "gc_pause"]),
        "gc_two": (False, []),
    }


def _traces(node: ast.With) -> bool:
    return "traceml.trace_step" in ast.unparse(node.items[0])
