"""The demo: its refusals here; that it diagnoses right is an end-to-end test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from perfwrap.commands import demo


def perfwrap(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "perfwrap", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)


def test_the_demo_says_what_to_install_when_its_libraries_are_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "NEEDS", {"os": "os", "no_such_module": "no-such-package"})
    with pytest.raises(demo.PerfwrapError) as refused:
        demo.demo(tmp_path / "out")
    assert refused.value.message.endswith("lacks no-such-package.")
    assert "pip install" in refused.value.hint
    assert not (tmp_path / "out").exists()


def test_the_demo_uses_the_activated_python_where_its_own_lacks_the_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "site" / "only_there").mkdir(parents=True)
    activated = tmp_path / "python"
    activated.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    activated.chmod(0o755)
    monkeypatch.setattr(demo, "NEEDS", {"only_there": "only-there"})
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert demo.find_python() == str(activated)


def test_the_demo_overwrites_nothing(tmp_path: Path) -> None:
    if find_spec("torch") is None or find_spec("sklearn") is None:
        pytest.skip("the demo needs PyTorch and scikit-learn")
    done = perfwrap("demo", "--out", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_the_demo_names_the_loader_at_its_line_and_applies_a_proven_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="the demo needs PyTorch")
    pytest.importorskip("sklearn", reason="the demo needs scikit-learn")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    # Other tests use the cores: more repeats would often prove nothing more.
    monkeypatch.setattr(demo, "FAST", ("--steps", "40", "--repeats", "2"))
    out = tmp_path / "demo"
    demo.demo(out)
    done = capfd.readouterr()
    slow = json.loads((out / "slow" / "diagnosis.json").read_text())
    finding = next(found for found in slow["findings"] if found["rule"] == "data_loader_single_process")
    script = out / "train_digits.py"
    assert finding["location"]["file"] == str(script)
    lines = demo.SCRIPT.read_text().splitlines()
    named = re.search(r"the DataLoader at train_digits\.py:(\d+)", finding["evidence"][0])
    assert named is not None
    assert "DataLoader(" in lines[int(named[1]) - 1]
    # With two compute threads on one free core, the model's work is most of the loop.
    # Where PyTorch is read from disk, the verdict names the start first.
    assert "Data-bound" in slow["verdict"]["sentence"] or slow["machine"]["other_programs"]
    # 1 500 images in batches of 32, four times.
    assert slow["steps"]["count"] == 4 * 47
    if not (out / "fixed").exists():
        # Other tests keep the cores busy, so workers are not advised or gain nothing.
        assert demo.BUSY in done.err
        assert script.read_bytes() == demo.SCRIPT.read_bytes()
        return
    fix = json.loads((out / "fix" / "fix.json").read_text())
    fixed = json.loads((out / "fixed" / "diagnosis.json").read_text())
    assert fix["total"]["high"] < 1
    assert [row["rule"] for row in fix["edits"] if row["state"] == "kept"] == ["data_loader_single_process"]
    added = [line for line in script.read_text().splitlines() if line not in lines]
    assert added and all(f"+{line}" in fix["patch"].splitlines() for line in added)
    assert any("num_workers=" in line for line in added)
    assert fixed["steps"]["count"] == 4 * 47
    assert "data_loader_single_process" not in [found["rule"] for found in fixed["findings"]]
    assert done.out.count("epoch 4") == 2
    assert "Result of the fix" in done.err
    assert "of its time before (" in done.err
    assert "Predicted: " in done.err
