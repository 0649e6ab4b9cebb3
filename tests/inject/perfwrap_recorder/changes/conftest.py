"""Running training programs with changes, and for a trial, through the shim as a user would."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from perfwrap import run_folder
from perfwrap.journal_format import DESCRIBE, HEADER, RECORD
from perfwrap.launch import injection
from perfwrap.launch.options import Trial

PREAMBLE = """
import os, sys
import torch
from torch import nn
torch.manual_seed(0)

class Data(torch.utils.data.Dataset):
    def __init__(self, size=64): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, index): return torch.full((8,), float(index)), index % 2

def train(loader, model, optimizer, steps=10**9, loss=nn.CrossEntropyLoss(), epochs=10**9):
    done = 0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            done += 1
            if done == steps: return value
"""
LINES = PREAMBLE.count("\n")


def read(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the facts of a journal, the last one of each key, and what coverage says."""
    content = path.read_bytes()
    texts: dict[int, dict[int, bytes]] = {}
    pairs: dict[int, list[tuple[int, int]]] = {DESCRIBE["FACT"]: [], DESCRIBE["COVERAGE"]: []}
    for start, duration, value, name, piece, kind in RECORD.iter_unpack(content[HEADER.size :]):
        if kind == DESCRIBE["TEXT"]:
            texts.setdefault(name, {})[piece] = struct.pack("<qqq", start, duration, value)
        elif kind in pairs:
            pairs[kind].append((name, value))
    text = {
        number: b"".join(pieces[at] for at in sorted(pieces)).rstrip(b"\0").decode()
        for number, pieces in texts.items()
    }
    facts, notes = ({text[name]: text.get(value, "") for name, value in found} for found in pairs.values())
    return facts, notes


@dataclass
class Tried:
    """A program that was tried with changes."""

    returncode: int
    stdout: str
    stderr: str
    facts: dict[str, str]
    """Of the process that trained."""
    script: Path
    ranks: dict[str, dict[str, str]]
    """The facts of each rank."""

    def said(self, name: str, what: str = "status") -> str:
        """Return what is said of a change."""
        return self.facts.get(f"change/{name}/{what}", "")

    def line(self, text: str) -> int:
        """Return the line of the program, without the preamble, that first holds a text."""
        lines = self.script.read_text().splitlines()[LINES:]
        return next(number for number, line in enumerate(lines, 1) if text in line)

    def sites(self, name: str) -> list[tuple[str, int, str, str]]:
        """Return file, line of the program, before and after of each site of a change."""
        sites = [site.split("\x1f") for site in self.said(name, "sites").split("\x1e")]
        return [
            (Path(file).name, int(line or 0) - LINES, before, after) for file, line, before, after in sites
        ]


class Tries:
    """Runs programs with changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def __call__(
        self,
        program: str,
        *changes: str,
        trial: Trial | None = None,
        check: bool = True,
        words: list[str] | None = None,
        more: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> Tried:
        """Run the program, which stands behind PREAMBLE, with these changes; ``check``: it ends well."""
        self.count += 1
        place = self.folder / str(self.count)
        run = run_folder.create(place, ["train"])
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERFWRAP"))
        }
        kept |= {"OMP_NUM_THREADS": "1", **(more or {})}
        trial = trial or Trial(changes)
        environment = {**kept, **injection.prepare(run, kept, window="", trial=trial)}
        script = place / "program.py"
        script.write_text(PREAMBLE + textwrap.dedent(program))
        command = [*(words or [python]), str(script)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=environment, cwd=place
        )
        read_all = [read(path) for path in run.journal.glob("*.pwj")]
        failed = {
            name: note for _, notes in read_all for name, note in notes.items() if note.startswith("failed")
        }
        assert not failed, failed
        if check:
            assert done.returncode == 0, done.stderr
        all_facts = [facts for facts, _ in read_all if "worker_id" not in facts]
        facts = max(all_facts, key=lambda found: ("trial/end" in found, len(found)), default={})
        ranks = {found["rank"]: found for found in all_facts if "rank" in found}
        return Tried(done.returncode, done.stdout, done.stderr, facts, script, ranks)


@pytest.fixture
def tried(tmp_path: Path) -> Tries:
    """Run programs with changes."""
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    return Tries(tmp_path)
