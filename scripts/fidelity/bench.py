"""One command of fidelity.py's list, and the folders in which it runs: always the same paths, always fresh copies."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import compare as comparing
from compare import Notes
from perfwrap.errors import PerfwrapError

HERE = Path(__file__).resolve().parent
FIXED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "default",
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "agg",
}
TOO_LONG = "too long"


@dataclass(frozen=True)
class Script:
    """One command of the list."""

    name: str
    command: str
    source: str = ""
    """The source that is copied; none for an empty folder."""
    folder: str = "."
    """The part of the source that is copied, in which the command runs."""
    prepare: str = ""
    """The command that makes its data, once, before all runs; {here} is the folder of this script."""
    limit_s: int = 1200
    seed: int = 1
    """The seed of random numbers if the script does not set one."""
    bare: int = 2
    """The maximum number of bare runs."""
    unordered: bool = False
    """Whether the order of lines varies, since several processes write."""
    keep: str = ""
    """A regular expression: only such lines of the output are compared."""
    drop: str = ""
    """A regular expression: its matches are removed from the output."""
    leave_out: tuple[str, ...] = ()
    """Columns that are not compared; ``why`` has the reason."""
    why: str = ""
    observe: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """The results of one run of a command."""

    exit: str
    stdout: str
    stderr: str
    files: dict[str, str]
    weights: dict[str, str]
    notes: Notes


class Bench:
    """The folders in which one script runs, at paths that stay the same from run to run."""

    def __init__(self, base: Path, script: Script, sources: Path | None, python: Path) -> None:
        self.script, self.python = script, python
        self.pristine, self.work = base / "pristine", base / "work"
        self.temporary, self.notes, self.recorded = base / "tmp", base / "notes", base / "run"
        self.place = Path(script.source or "here") / script.folder
        if script.source:
            origin = _checkout(sources, script.source) / script.folder
            shutil.copytree(
                origin, self.pristine / self.place, symlinks=True, ignore=shutil.ignore_patterns(".git")
            )
        else:
            (self.pristine / self.place).mkdir(parents=True)
        self.temporary.mkdir()
        if script.prepare:
            words = _words(script.prepare)
            subprocess.run(
                words,
                cwd=self.pristine / self.place,
                env=self._variables(False),
                stdout=subprocess.DEVNULL,
                check=True,
            )

    def run(self, *wrapper: str) -> Run:
        """Run the command in fresh copies of its folders."""
        for folder in (self.work, self.temporary, self.notes, self.recorded):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.pristine, self.work, symlinks=True)
        self.temporary.mkdir()
        self.notes.mkdir()
        words = [*wrapper, *_words(self.script.command)]
        process = subprocess.Popen(
            words,
            cwd=self.work / self.place,
            env=self._variables(self.script.observe),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=self.script.limit_s)
            status = str(process.returncode)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            status = TOO_LONG
        files = comparing.files_in(self.work)
        weights = comparing.weights_in(self.work, files)
        notes = [json.loads(path.read_text()) for path in self.notes.glob("*.json")]
        return Run(status, stdout, stderr, files, weights, Notes(notes))

    def _variables(self, observed: bool) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PERFWRAP", "PYTHON"))
        }
        variables = {**inherited, **FIXED, "TMPDIR": str(self.temporary), **self.script.environment}
        variables["PATH"] = f"{self.python.parent}:{inherited['PATH']}"
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(self.temporary / "inductor")
        if observed:
            added = [str(HERE / "observer"), *filter(None, [variables.get("PYTHONPATH")])]
            variables |= {"PYTHONPATH": ":".join(added), "FIDELITY_NOTES": str(self.notes)}
            variables["FIDELITY_SEED"] = str(self.script.seed)
        return variables


def _words(command: str) -> list[str]:
    return [word.replace("{here}", str(HERE)) for word in shlex.split(command)]


def _checkout(sources: Path | None, source: str) -> Path:
    """Return the folder of a source; PerfwrapError if it does not exist."""
    if source == "scripts":
        return HERE
    if sources is None or not (sources / source).is_dir():
        raise PerfwrapError(
            f"There is no checkout of {source}.", "Its list says from where; --sources DIR says where it is."
        )
    return sources / source
