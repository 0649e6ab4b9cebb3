"""What the tests of several rooms share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

# A crowded machine may stand still for seconds: how long an example takes says nothing about the program.
# The same examples each time: a run fails for what was changed alone. HYPOTHESIS_PROFILE=explore looks for more.
settings.register_profile("perfwrap", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "perfwrap"))

# Two workers share the cores: threads that wait for each other, or spin, make the tests up to three times slower.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in a script's background: programs under test inherit that, and Ctrl-C would not reach them.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def _answers(python: Path | str, version: str) -> bool:
    """Say whether ``python`` really is that version (pyenv's shims exist for versions that do not start)."""
    try:
        answer = subprocess.run(
            [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def find_interpreter(version: str) -> str | None:
    """Return a working interpreter of that version: pyenv's own, else the one on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = sorted(pyenv.glob(f"{version}.*/bin/python")) + [shutil.which(f"python{version}") or ""]
    return next((str(found) for found in candidates if str(found) and _answers(found, version)), None)


@pytest.fixture(scope="session", params=VERSIONS)
def interpreter(request: pytest.FixtureRequest) -> str:
    """Each installed Python from 3.8 to 3.14."""
    found = find_interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test that is marked ``timing`` up to three times until it passes, where pytest-rerunfailures is installed.

    Such a test judges what this machine's clock says of a real program, and another process may take the cores for a
    moment. Every other test fails at its first failure, so that races in perfwrap are seen.
    """
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if item.get_closest_marker("timing"):
                item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return REPOSITORY
