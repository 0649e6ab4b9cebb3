"""Find out from /proc why the recorder was not loaded into a Python process.

A Python runs the injected sitecustomize.py unless it ignores PYTHONPATH, has another PYTHONPATH, or finds another
sitecustomize first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 8)
"""The oldest Python that the recorder supports; the shim does nothing in older ones."""
OFF = ("PERFWRAP_OFF", "PERFWRAP_DISABLE")
INTERPRETER = re.compile(
    r"(?P<kind>python|pypy)(?P<major>\d+)?(\.(?P<minor>\d+))?[a-z]?(-dbg)?( \(deleted\))?$"
)
IGNORES_PATH = "makes Python ignore PYTHONPATH"
FORBIDDEN = {
    "I": IGNORES_PATH,
    "E": IGNORES_PATH,
    "S": "keeps Python from importing site, and with it any sitecustomize",
}
"""The effect of options of Python on the recorder."""
OPTION_WITH_VALUE = re.compile("(?=[cmWX])")
"""The first option with a value in a group of options."""
ALREADY_THERE = "belongs to a job that perfwrap attached to, which records nothing inside"
CUSTOMIZE = ("sitecustomize.py", "sitecustomize/__init__.py")


@dataclass(frozen=True)
class Interpreter:
    """The facts of /proc about a process that runs Python."""

    proc: Path
    name: re.Match[str]
    """Of the executable: kind, major, minor."""
    words: list[str]
    user: int


def explain(pid: int, hook: str | Path) -> str | None:
    """Return why the process has no start record; None if it has ended or is not a Python.

    The reason continues a sentence that begins with "it". ``hook`` is the directory that perfwrap put on PYTHONPATH, ""
    if it did not start the job.
    """
    try:
        found = _read(Path(f"/proc/{pid}"))
        if found is None:
            return None
        if not hook:
            return ALREADY_THERE
        if not Path(hook).is_dir():
            return f"could not find {hook}, which no longer exists"
        return (
            _of_another_kind(found)
            or _of_another_user(found, Path(hook))
            or _by_options(found.words)
            or _by_environment(found, Path(hook))
            or "did not load the recorder, for an unknown reason"
        )
    except PermissionError:
        return "has an environment that this user cannot read"
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None


def _read(proc: Path) -> Interpreter | None:
    """Return the process if it runs Python; OSError if it has ended."""
    words = os.fsdecode((proc / "cmdline").read_bytes()).rstrip("\0").split("\0")
    try:
        executable = (proc / "exe").readlink()
    except PermissionError:
        executable = Path(words[0])
    name = INTERPRETER.match(executable.name)
    status = (proc / "status").read_text(encoding="utf-8", errors="replace")
    user = next(line.split()[2] for line in status.splitlines() if line.startswith("Uid:"))
    return Interpreter(proc, name, words, int(user)) if name and words[0] else None


def _of_another_kind(found: Interpreter) -> str | None:
    """Return a reason if the recorder does not support this Python."""
    if found.name["kind"] != "python":
        return "is PyPy, and perfwrap records CPython only"
    version = int(found.name["major"] or OLDEST[0]), int(found.name["minor"] or OLDEST[1])
    if version >= OLDEST:
        return None
    return "is Python {}.{}, and perfwrap records 3.8 and later".format(*version)


def _of_another_user(found: Interpreter, hook: Path) -> str | None:
    """Return a reason if the process may not read the run folder, which only its owner may."""
    if found.user in (0, hook.stat().st_uid):
        return None
    return f"runs as another user ({found.user}), who may not read {hook}"


def _by_options(words: Sequence[str]) -> str | None:
    """Return a reason if an option of Python, alone or in a group such as ``-sE``, disables the recorder."""
    rest = iter(words[1:])
    for word in rest:
        if word == "--check-hash-based-pycs":
            next(rest, None)
        elif not word.startswith("-") or word == "-":
            return None
        elif not word.startswith("--"):
            flags = OPTION_WITH_VALUE.split(word[1:], maxsplit=1)[0]
            for letter in flags:
                if letter in FORBIDDEN:
                    return f"was started with -{flags}, which {FORBIDDEN[letter]}"
            own = word[1 + len(flags) :]
            if own[:1] in ("c", "m"):
                return None
            if own in ("W", "X"):
                next(rest, None)
    return None


def _by_environment(found: Interpreter, hook: Path) -> str | None:
    """Return a reason if its environment differs from that of the command."""
    entries = os.fsdecode((found.proc / "environ").read_bytes()).split("\0")
    environment = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    for name in OFF:
        if environment.get(name) == "1":
            return f"was excluded by {name}=1"
    path = environment.get("PYTHONPATH", "")
    if not path:
        return "had its environment cleared" if "PATH" not in environment else "had PYTHONPATH unset"
    elements = [found.proc / "cwd" / element for element in path.split(os.pathsep)]
    ours = [at for at, element in enumerate(elements) if os.path.realpath(element) == os.path.realpath(hook)]
    if not ours:
        return f"had PYTHONPATH replaced by {path}"
    if not (found.proc / "root" / hook.relative_to("/")).is_dir():
        return f"cannot see {hook} where it runs"
    return _by_shadow(elements[: ours[0]], path.split(os.pathsep))


def _by_shadow(earlier: Sequence[Path], spelled: Sequence[str]) -> str | None:
    """Return a reason if another sitecustomize is found first on PYTHONPATH."""
    for element, name in zip(earlier, spelled, strict=False):
        for customize in CUSTOMIZE:
            if (element / customize).is_file():
                return f"was shadowed by {Path(name, customize)}, which runs no other sitecustomize"
    return None
