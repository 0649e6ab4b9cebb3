"""Running training programs with all probes installed."""

from __future__ import annotations

import difflib

import pytest

INSTALL = """
from importlib import import_module
from perfwrap_recorder import guard, on_import, probes
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


BARE = "import os, sys, torch\nfrom torch import nn\ntorch.set_num_threads(1)\n"


@pytest.fixture(scope="module")
def train(make_warm_run):
    """Run a program that has torch, nn and every probe; checks that no probe failed.

    ``fresh`` has a Python run it that has not imported Dynamo yet.
    """
    run = make_warm_run()

    def train(program: str, **options):
        for old in (run.folder / "journal").glob("*"):
            old.unlink()
        return run(INSTALL + program + "\nassert not guard.failed, guard.failed\n", **options)

    return train


@pytest.fixture(scope="module")
def same(train, warm_python):
    """Run a program with the recorder and bare, in the same file at the same lines; both must print the same."""

    def same(program: str):
        done = train(program)
        script = done.run_dir / "program.py"
        ours = script.read_text().index(program)
        lines = script.read_text()[:ours].count("\n")
        script.write_text(BARE + "\n" * (lines - BARE.count("\n")) + program)
        bare = warm_python.run(script, str(done.run_dir), cwd=done.run_dir)
        assert bare.returncode == 0, bare.stderr
        assert "\n".join(difflib.unified_diff(bare.stdout.split("\n"), done.stdout.split("\n"), n=1)) == ""
        return done

    return same
