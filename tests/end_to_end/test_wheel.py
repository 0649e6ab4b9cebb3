"""The wheel, installed away from the program that it profiles."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = [pytest.mark.timeout(900)]

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
print("weights", model.weight.sum().item())
"""


def run(*command: object, cwd: Path) -> str:
    """Run a command that must succeed and return its stdout."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, repository, cwd=out)
    return next(out.glob("*.whl"))


def test_the_wheel_carries_the_recorder_and_no_tests(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert "perfwrap/_inject/sitecustomize.py" in names
    assert "perfwrap/_inject/perfwrap_recorder/journal/journal.py" in names
    assert "perfwrap/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "scripts"))]


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="the target of the profile needs PyTorch")
def test_a_tool_installed_elsewhere_profiles_a_script_of_this_environment(
    wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "tool"
    # The pip of this environment installs, and byte code is made of what is imported only: both save many seconds.
    venv.create(home, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-compile", wheel, cwd=tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    bare = run(sys.executable, script, cwd=tmp_path)
    out = tmp_path / "run"
    tool = home / "bin" / "perfwrap"
    wrapped = run(tool, "run", "--out", out, "--", sys.executable, script, cwd=tmp_path)
    assert wrapped == bare
    diagnosis = json.loads((out / "diagnosis.json").read_text())
    assert diagnosis["steps"]["count"] == 60
    assert run(tool, "report", out, cwd=tmp_path)
