"""What a run keeps, who may read it, and to whom perfwrap speaks: docs/security.md, held against a real run."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "hunter2hunter2"
PROGRAM = """
import json, os, sys, time
import torch
launcher = os.getppid()
found, watched = [], 0
deadline = time.monotonic() + 200
while time.monotonic() < deadline and watched < 3:
    watched = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            if launcher in (int(name), parent):  # the monitors, and this very process
                watched += 1
                fds = "/proc/%s/fd" % name
                found += [os.readlink(os.path.join(fds, fd)) for fd in os.listdir(fds)]
        except OSError:
            pass
with open("seen.json", "w") as file:
    json.dump([watched, [one for one in found if one.startswith("socket:")]], file)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the place of a run under an open umask, with a secret in all that may hold one."""
    place = tmp_path_factory.mktemp("security")
    (place / "torch").mkdir()
    (place / "torch/__init__.py").write_text("__version__ = '2.13.0'\n")
    (place / "train.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "train.py",
        f"--api-key={SECRET}",
        "--token",
        SECRET,
        f"https://me:{SECRET}@example.org",
    ]
    environment = {
        **os.environ,
        "WANDB_API_KEY": SECRET,
        "UNHEARD_OF": SECRET,
        "NCCL_X": f"https://u:{SECRET}@h",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "perfwrap", "run", "--window", "steady", "--", *command],
        cwd=place,
        env=environment,
        umask=0,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    assert SECRET not in ended.stderr
    return place


def _folder(run: Path) -> Path:
    (folder,) = (run / "perfwrap-runs").glob("[!.]*")
    return folder


def test_no_file_of_a_run_holds_a_secret_of_its_command_or_environment(run: Path) -> None:
    files = [path for path in _folder(run).rglob("*") if path.is_file()]
    assert {"run.json", "diagnosis.json", "report.html", "trace.json.gz"} <= {path.name for path in files}
    assert any(path.suffix == ".pwj" for path in files)
    for path in files:
        data = path.read_bytes()
        # In journals a text stands in pieces of 24 bytes, each in a record of 32.
        joined = (
            b"".join(data[at : at + 24] for at in range(0, len(data), 32)) if path.suffix == ".pwj" else b""
        )
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        assert SECRET.encode() not in data + joined, path
    manifest = json.loads((_folder(run) / "run.json").read_text())
    assert manifest["command"][2:] == ["--api-key=***", "--token", "***", "https://***@example.org"]
    assert manifest["environment"]["NCCL_X"] == "https://***@h"
    assert "UNHEARD_OF" not in manifest["environment"]


def test_a_run_is_its_owners_alone_under_an_open_umask(run: Path) -> None:
    folder = _folder(run)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.parent.stat().st_mode & 0o022
    inside = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != ".inject"]
    assert not [path for path in inside if path.lstat().st_mode & 0o077]
    assert not [path for path in (folder / ".inject").rglob("*") if path.stat().st_mode & 0o022]


def test_nothing_of_perfwrap_has_a_socket_while_a_command_runs(run: Path) -> None:
    watched, sockets = json.loads((run / "seen.json").read_text())
    assert watched >= 3
    assert sockets == []
