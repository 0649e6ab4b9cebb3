"""The folder that an agent's server was started for: which programs it may start, and which files it may read.

Every program, run and document is inside of the folder, also after links are followed. The program itself can do what
it can do without perfwrap: this bounds what an agent can ask for, and is no sandbox.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import SOURCE_SUFFIXES
from pathlib import Path

from perfwrap import run_folder
from perfwrap.analysis import run_names
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere, read_plain

PYTHON = re.compile(r"python(\d(\.\d+)?)?t?$")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
NO_PYTHON = ("--no-python", "--no_python")
"""Options of launchers that start any program instead of a script."""
WITH_VALUE = ("-X", "-W")
FLAGS = re.compile(r"-[uBdbOsSEIPqvx]+$")
"""Options of Python that run nothing by themselves."""
DOCUMENTS = (
    run_folder.DIAGNOSIS,
    run_names.TRY,
    run_names.FIX,
    run_names.PATCH,
    run_names.PULL_REQUEST,
)
"""The documents that an agent may read."""
MAX_DOCUMENT_BYTES = 4 << 20
EXAMPLE = 'For example: ["python", "train.py", "--max-steps", "300"]'


class Workspace:
    """The folder, which is the current directory of the server."""

    def __init__(self, root: Path) -> None:
        """Take the folder; OSError if there is none."""
        self.root = root.resolve(strict=True)

    def demand_command(self, words: Sequence[str]) -> list[str]:
        """Return the command if it runs a program inside of the folder; PerfwrapError otherwise."""
        if not words or not all(words):
            raise PerfwrapError("The command is empty.", EXAMPLE)
        if any("\0" in word for word in words):
            raise PerfwrapError("The command contains a zero byte.", EXAMPLE)
        program = Path(words[0])
        if "/" in words[0] and not self._is_known(program.parent):
            raise PerfwrapError(f"{words[0]} is outside of {self.root}, and not on PATH.", EXAMPLE)
        if PYTHON.fullmatch(program.name):
            self._demand_entry(iter(words[1:]))
        elif program.name in LAUNCHERS:
            self._demand_script(iter(words[1:]))
        elif "/" not in words[0] or not self._is_file(words[0]):
            allowed = f"python, {', '.join(LAUNCHERS)} or a program inside of {self.root}"
            raise PerfwrapError(f"{words[0]!r} is not {allowed}.", EXAMPLE)
        return list(words)

    def _demand_entry(self, words: Iterator[str]) -> None:
        """Check what a Python is to run: a script or a module inside of the folder."""
        for word in words:
            if word in WITH_VALUE:
                next(words, None)
            elif word == "-m":
                module = next(words, "")
                if module in LAUNCHER_MODULES:
                    self._demand_script(words)
                elif not self._has_module(module):
                    raise PerfwrapError(f"There is no module {module!r} inside of {self.root}.", EXAMPLE)
                return
            elif not word.startswith("-"):
                self._demand_file(word)
                return
            elif not FLAGS.fullmatch(word):
                raise PerfwrapError(f"The option {word} of Python is not allowed here.", EXAMPLE)
        raise PerfwrapError("The command names no script.", EXAMPLE)

    def _demand_script(self, words: Iterator[str]) -> None:
        """Check the script that a launcher is to run."""
        for word in words:
            if word in NO_PYTHON or word in ("-m", "--module"):
                raise PerfwrapError(f"The option {word} is not allowed here.", EXAMPLE)
            if word.endswith(tuple(SOURCE_SUFFIXES)):
                self._demand_file(word)
                return
        raise PerfwrapError("The command names no script that ends in .py.", EXAMPLE)

    def _demand_file(self, name: str) -> None:
        if not self._is_file(name):
            raise PerfwrapError(f"There is no script {name} inside of {self.root}.", EXAMPLE)

    def _has_module(self, module: str) -> bool:
        """Return whether ``python -m module`` runs a file of the folder, or of its ``src``."""
        path = module.replace(".", "/")
        names = (f"{path}.py", f"{path}/__main__.py")
        return bool(module) and any(
            self._is_file(f"{above}{name}") for above in ("", "src/") for name in names
        )

    def _is_file(self, name: str) -> bool:
        path = self.root / name
        return path.is_file() and self._is_inside(path)

    def _is_known(self, folder: Path) -> bool:
        """Return whether programs of a folder may be named by their path: inside, on PATH, or beside this Python."""
        places = [*os.environ.get("PATH", "").split(os.pathsep), str(Path(sys.executable).parent)]
        return self._is_inside(self.root / folder) or str(folder) in places

    def _is_inside(self, path: Path) -> bool:
        """Return whether a path is inside of the folder after links are followed."""
        return path.resolve().is_relative_to(self.root)

    def run(self, name: str) -> Path:
        """Return the folder of a run, or of a trial, by its name; PerfwrapError if it is not inside of the folder."""
        runs = self.root / run_folder.RUNS
        if "/" not in name and name not in (".", "..") and run_names.is_trial(runs / name):
            found = runs / name
        else:
            found = self.root / run_names.find(name)
        if not self._is_inside(found):
            where = "leads" if leads_somewhere(name) else "is a link that leads"
            raise PerfwrapError(f"{name} {where} outside of {self.root}.", "Give the name of a run.")
        return found

    def runs(self) -> list[Path]:
        """Return the folders of all runs and trials of the folder, the newest last."""
        runs = self.root / run_folder.RUNS
        found = [*run_names.folders(runs), *run_names.trials(runs)]
        return [path for path in sorted(set(found), key=lambda path: path.name) if self._is_inside(path)]

    def document(self, run: str, name: str) -> str:
        """Return one of DOCUMENTS of a run; PerfwrapError if there is none."""
        if name not in DOCUMENTS:
            raise PerfwrapError(f"There is no document {name!r}.", f"Use one of: {', '.join(DOCUMENTS)}.")
        path = self.run(run) / name
        if not (path.is_file() and self._is_inside(path)):
            raise PerfwrapError(
                f"The run {run} has no {name}.", "It comes with: perfwrap report, try or fix."
            )
        return read_plain(path, MAX_DOCUMENT_BYTES).decode("utf-8", "replace")

    def new_run(self, verb: str, command: Sequence[str]) -> Path:
        """Return a path for a new run, relative to the folder; nothing is created."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name = f"{stamp}-{verb}-{run_folder.stem(list(command))}"
        runs, number = Path(run_folder.RUNS), 1
        path = runs / name
        while (self.root / path).exists():
            number += 1
            path = runs / f"{name}-{number}"
        return path
