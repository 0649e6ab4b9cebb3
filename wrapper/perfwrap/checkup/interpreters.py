"""Which Python interpreters the recorder is loaded into, found by starting them as a command would."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfwrap.checkup.check_line import Line
from perfwrap.launch import injection
from perfwrap.monitors.processes.uninjected import explain
from perfwrap.run_folder import START_FIELDS, RunFolder

PATIENCE_SECONDS = 30.0
"""A Python on a slow network file system may take this long to start."""
END = "end"

# Runs in any Python that is found, hence the syntax of 2.7; torch is searched for, not imported.
ASK = r"""
import os, re, sys
def say(key, value):
    print("%s\t%s" % (key, value))
say("version", "%d.%d.%d" % sys.version_info[:3])
say("executable", sys.executable)
say("prefix", sys.prefix)
say("sitecustomize", getattr(sys.modules.get("sitecustomize"), "__file__", ""))
try:
    from importlib.util import find_spec
    origin = getattr(find_spec("torch"), "origin", None) or ""
    with open(os.path.join(os.path.dirname(origin), "version.py")) as file:
        for key, value in re.findall(r"(?m)^(__version__|cuda|hip)\b[^=\n]*=\s*'([^']*)'", file.read()):
            say(key, value)
except (ImportError, IOError, ValueError):
    pass
say("end", "")
sys.stdout.flush()
sys.stdin.read()
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter, and how the recorder was loaded into it."""

    command: str
    said: Mapping[str, str]
    vector: str
    """The file that loaded the recorder; empty if none did."""
    reason: str
    """Why the recorder was not loaded."""

    @property
    def torch(self) -> str:
        """Return e.g. ``torch 2.6.0+cu124 (CUDA 12.4)``, or an empty text without torch."""
        if "__version__" not in self.said:
            return ""
        builds = [
            f"{name} {self.said[key]}"
            for key, name in (("cuda", "CUDA"), ("hip", "ROCm"))
            if key in self.said
        ]
        return f"torch {self.said['__version__']}" + (f" ({builds[0]})" if builds else "")

    @property
    def can_record(self) -> bool:
        """Return whether training in this Python can be recorded."""
        return bool(self.vector and self.torch)

    def line(self) -> Line:
        """Return its line of the table."""
        version, place = self.said.get("version", "?"), self.said.get("executable") or self.command
        chained = self.said.get("sitecustomize", "")
        pieces = [
            f"recorder loaded by {self.vector}" if self.vector else f"recorder not loaded: {self.reason}",
            self.torch or "torch is not installed",
            f"{chained} also runs" if chained and self.vector else "",
        ]
        works = "yes" if self.can_record else "partly" if self.vector else "no"
        return Line(works, f"Python {version}", f"{place}: {'; '.join(filter(None, pieces))}")  # type: ignore[arg-type]


def find_interpreters(environment: Mapping[str, str]) -> list[Interpreter]:
    """Return the Pythons on PATH under their usual names, and that of perfwrap."""
    found: dict[tuple[str, str], Interpreter] = {}
    with tempfile.TemporaryDirectory(prefix="perfwrap-doctor-") as folder:
        run = RunFolder(Path(folder))
        run.starts.mkdir()
        changed = {**environment, **injection.prepare(run, environment)}
        for command in ("python", "python3", sys.executable):
            path = shutil.which(command, path=environment.get("PATH", os.defpath))
            interpreter = examine(path, run, changed) if path else None
            if interpreter is not None:
                identity = interpreter.said.get("version", command), interpreter.said.get("prefix", command)
                found.setdefault(identity, interpreter)
    return list(found.values())


def examine(path: str, run: RunFolder, environment: Mapping[str, str]) -> Interpreter | None:
    """Start a Python in this environment and return its facts; None if it does not start."""
    try:
        process = subprocess.Popen(
            [path, "-c", ASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
        )
    except OSError:
        return None
    with process:
        said = _listen(process)
        vector = read_vectors(run).get(process.pid, "")
        reason = "" if vector else explain(process.pid, run.inject) or "it exited immediately"
        process.kill()
    return Interpreter(path, said, vector, reason) if said or reason else None


def read_vectors(run: RunFolder) -> dict[int, str]:
    """Return by pid which file loaded the recorder in each Python of a run."""
    rows = [
        dict(zip(START_FIELDS, line.split("\t"), strict=False))
        for path in run.starts.glob("*.log")
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    return {int(row["pid"]): row["vector"] for row in rows if row.get("event") == "start" and "vector" in row}


def _listen(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Return what the Python prints about itself within the time limit."""
    deadline, text = time.monotonic() + PATIENCE_SECONDS, b""
    assert process.stdout is not None
    while f"\n{END}\t".encode() not in text:
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        text += piece
    lines = text.decode("utf-8", "replace").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)
