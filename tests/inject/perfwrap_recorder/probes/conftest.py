"""Running training programs with all probes installed."""

from __future__ import annotations

import difflib
import subprocess
import sys

import pytest

INSTALL = """
from importlib import import_module
from perfwrap_recorder import probes, guard, on_import
open_journal()
import torch
from torch import nn
sys.meta_path.insert(0, on_import.Finder)
for probe in [import_module("perfwrap_recorder.probes." + name) for name in probes.PROBES]:
    for awaited, function in getattr(probe, "MODULES", {}).items():
        on_import.after(awaited, function)
    probe.install(torch)
torch.set_num_threads(1)
"""


@pytest.fixture(scope="module")
def train(make_run):
    """Run a program that has torch, nn and every probe; checks that no probe failed."""
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    run = make_run()

    def train(program: str, **options):
        for old in (run.folder / "journal").glob("*"):
            old.unlink()
        return run(INSTALL + program + "\nassert not guard.failed, guard.failed\n", **options)

    return train


@pytest.fixture(scope="module")
def same(train):
    """Run a program bare and with the recorder; both must print the same."""

    def same(program: str):
        bare = subprocess.run(
            [
                sys.executable,
                "-c",
                "import torch\nfrom torch import nn\ntorch.set_num_threads(1)\n" + program,
            ],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert bare.returncode == 0, bare.stderr
        done = train(program)
        assert "\n".join(difflib.unified_diff(bare.stdout.split("\n"), done.stdout.split("\n"), n=1)) == ""
        return done

    return same
