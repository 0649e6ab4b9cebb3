"""Runs of other interpreters, bare and injected, without the launcher."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import subprocess
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from perfwrap import run_folder
from perfwrap.journal_format import DESCRIBE, HEADER, RECORD
from perfwrap.launch import injection
from perfwrap.launch.options import EditedFile

PROBE = """
from perfwrap_recorder import on_import

def start(settings):
    def say(*words):
        with open(settings.run_dir + "/said", "a") as file:
            file.write(" ".join(words) + "\\n")
    say("started")
    for name in {names!r}:
        on_import.after(name, lambda module, name=name: say("ran", name))
"""
"""A recorder that only says which of the modules that it waits for have run."""


class Journal:
    """What a journal says about its process."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        _, _, self.pid, self.opened_ns, _ = HEADER.unpack_from(content)
        records = [RECORD.unpack_from(content, at) for at in range(RECORD.size, len(content), RECORD.size)]
        texts: dict[int, dict[int, bytes]] = {}
        for start, duration, value, name, piece, kind in records:
            if kind == DESCRIBE["TEXT"]:
                texts.setdefault(name, {})[piece] = struct.pack("<qqq", start, duration, value)
        joined = {number: b"".join(pieces[at] for at in sorted(pieces)) for number, pieces in texts.items()}
        self.texts = {number: text.rstrip(b"\0").decode() for number, text in joined.items()}
        self.facts = self._pairs(records, "FACT")
        self.notes = self._pairs(records, "COVERAGE")
        self.spans = [
            (kind, self.texts.get(name, "")) for _, _, _, name, _, kind in records if 32 <= kind < 64
        ]

    def _pairs(self, records: list[tuple[int, ...]], wanted: str) -> dict[str, str]:
        return {
            self.texts[name]: self.texts.get(value, "")
            for _, _, value, name, _, kind in records
            if kind == DESCRIBE[wanted]
        }


class Run:
    """A run folder whose injected directory is on the PYTHONPATH of what is started through it."""

    def __init__(self, folder: Path, previous: str | None = None, overlay: Sequence[EditedFile] = ()) -> None:
        folder.mkdir(parents=True)
        self.folder = run_folder.RunFolder(folder)
        self.folder.starts.mkdir()
        self.folder.journal.mkdir()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERFWRAP"))
        }
        # The interpreters' own libraries stay as they are found.
        self.bare = {**kept, "PYTHONDONTWRITEBYTECODE": "1"}
        if previous is not None:
            self.bare["PYTHONPATH"] = previous
        self.environment = {**self.bare, **injection.prepare(self.folder, self.bare, overlay=overlay)}
        self.hook = Path(self.environment["PYTHONPATH"].split(os.pathsep)[0])
        (self.data,) = (path.parent for path in self.hook.glob("*/settings"))

    def start(self, *command: object, **options: object) -> subprocess.CompletedProcess[str]:
        """Run an injected command; ``more`` adds to its environment."""
        return self._start(self.environment, command, options)

    def start_bare(self, *command: object, **options: object) -> subprocess.CompletedProcess[str]:
        """Run the command without perfwrap."""
        return self._start(self.bare, command, options)

    def same(self, *command: object, **options: object) -> subprocess.CompletedProcess[str]:
        """Run the command bare and injected; both must say and return the same."""
        bare, injected = self.start_bare(*command, **options), self.start(*command, **options)
        assert injected.stdout == bare.stdout
        assert injected.stderr == bare.stderr
        assert injected.returncode == bare.returncode
        return injected

    def _start(self, environment, command, options):
        more = {name: str(value) for name, value in options.pop("more", {}).items()}
        words = [str(word) for word in command]
        settings = {"capture_output": True, "text": True, "timeout": 240, "env": {**environment, **more}}
        return subprocess.run(words, **{**settings, **options})

    def starts(self) -> list[dict[str, str]]:
        """Return the start records, each as a dictionary."""
        lines = [line for log in self.folder.starts.glob("*.log") for line in log.read_text().splitlines()]
        return [dict(zip(run_folder.START_FIELDS, line.split("\t"), strict=True)) for line in lines]

    def events(self) -> list[str]:
        """Return the contents of the start records, in their order."""
        return [start["event"] for start in self.starts()]

    def wait_for(self, *names: str) -> Run:
        """Have a recorder that says when these modules have run, in place of the real one."""
        (self.data / "perfwrap_recorder" / "start.py").write_text(PROBE.format(names=names))
        return self

    def use_probes(self, **sources: str) -> Run:
        """Have these probes in place of the real ones."""
        probes = self.data / "perfwrap_recorder" / "probes"
        (probes / "__init__.py").write_text(f"PROBES = {tuple(sources)!r}\n")
        for name, source in sources.items():
            (probes / f"{name}.py").write_text(textwrap.dedent(source))
        return self

    def journals(self) -> list[Journal]:
        """Return what the journals say, in the order in which they were opened."""
        return sorted(map(Journal, self.folder.journal.iterdir()), key=lambda journal: journal.opened_ns)

    def said(self) -> list[str]:
        """Return what that recorder said."""
        said = self.folder.path / "said"
        return said.read_text().splitlines() if said.exists() else []


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose command had no PYTHONPATH."""
    return Run(tmp_path / "run")


@pytest.fixture
def make_edited_run(tmp_path: Path) -> Callable[..., Run]:
    """Make runs whose command runs edited files."""
    made = itertools.count()
    return lambda overlay: Run(tmp_path / f"edited-{next(made)}", overlay=overlay)


@pytest.fixture(scope="module")
def make_lasting_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Run]:
    """Make runs that several tests look at."""
    return lambda: Run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """Make runs with a PYTHONPATH of their own."""
    made = []

    def make(previous: str | None = None, name: str | None = None) -> Run:
        made.append(Run(tmp_path / (name or f"run{len(made)}"), previous))
        return made[-1]

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below the test's directory and return its path."""

    def write(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture(scope="session", params=["2.7", "3.6", "3.7"])
def old_interpreter(request: pytest.FixtureRequest) -> str:
    """Each installed Python that is too old for the recorder."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{request.param}.*/bin/python"))
    python = str(found[0]) if found else shutil.which(f"python{request.param}")
    if python is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return python


@pytest.fixture
def fake_torch(write: Callable[..., Path]) -> Path:
    """A directory with a package that is called torch and imports its parts in torch's order."""
    write("fake/torch/__init__.py", "import torch._tensor\nimport torch.nn\nimport torch.optim\n")
    write("fake/torch/_tensor.py", "class Tensor: pass\n")
    write("fake/torch/nn/__init__.py", "import torch.utils.data.dataloader\n")
    write("fake/torch/utils/__init__.py")
    write("fake/torch/utils/data/__init__.py")
    write("fake/torch/utils/data/dataloader.py", "class DataLoader: pass\n")
    return write("fake/torch/optim.py").parent.parent
