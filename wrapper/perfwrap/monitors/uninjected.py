"""Say why a Python process was not reached; what /proc tells about the process is enough for that.

A Python runs the injected sitecustomize.py unless it was told to ignore PYTHONPATH, got another one, or found
another sitecustomize first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 8)
"""The recorder's oldest Python; the shim lets older ones pass."""
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
"""What Python's own options do to us."""
OPTION_WITH_VALUE = re.compile("(?=[cmWX])")
"""Where in a cluster of options the first one stands that takes a value."""
ALREADY_THERE = "belongs to a job that perfwrap attached to, which records nothing inside"
CUSTOMIZE = ("sitecustomize.py", "sitecustomize/__init__.py")


@dataclass(frozen=True)
class Interpreter:
    """What /proc tells about a process that runs Python."""

    proc: Path
    name: re.Match[str]
    """Of the executable: kind, major, minor."""
    words: list[str]
    user: int


def explain(pid: int, hook: str | Path) -> str | None:
    """Return why the process has no start record; None when it is gone or is no Python.

    The answer is to be read after "it". ``hook`` is the directory that perfwrap has put on PYTHONPATH, "" where it
    did not start the job.
    """
    try:
        found = _read(Path(f"/proc/{pid}"))
        if found is None:
            return None
        if not hook:
            return ALREADY_THERE
        if not Path(hook).is_dir():
            return f"could not find {hook}, which is gone"
        return (
            _of_another_kind(found)
            or _of_another_user(found, Path(hook))
            or _by_options(found.words)
            or _by_environment(found, Path(hook))
            or "was not reached, for no reason that can be seen from outside"
        )
    except PermissionError:
        return "has an environment that the system does not show to this user"
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None


def _read(proc: Path) -> Interpreter | None:
    """Return the process if it runs Python; OSError when it is gone."""
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
    """Return a reason when it is not a CPython that the recorder can work in."""
    if found.name["kind"] != "python":
        return "is PyPy, and perfwrap records CPython only"
    version = int(found.name["major"] or OLDEST[0]), int(found.name["minor"] or OLDEST[1])
    if version >= OLDEST:
        return None
    return "is Python {}.{}, and perfwrap records 3.8 and later".format(*version)


def _of_another_user(found: Interpreter, hook: Path) -> str | None:
    """Return a reason when the process may not read the run folder, which is its owner's alone."""
    if found.user in (0, hook.stat().st_uid):
        return None
    return f"runs as another user ({found.user}), who may not read {hook}"


def _by_options(words: Sequence[str]) -> str | None:
    """Return a reason when an option of Python, alone or in a cluster such as ``-sE``, forbids us."""
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
    """Return a reason when its environment is not the one that the command got."""
    entries = os.fsdecode((found.proc / "environ").read_bytes()).split("\0")
    environment = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    for name in OFF:
        if environment.get(name) == "1":
            return f"was left alone because of {name}=1"
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
    """Return a reason when another sitecustomize comes first on PYTHONPATH."""
    for element, name in zip(earlier, spelled, strict=False):
        for customize in CUSTOMIZE:
            if (element / customize).is_file():
                return f"was shadowed by {Path(name, customize)}, which runs no other sitecustomize"
    return None
