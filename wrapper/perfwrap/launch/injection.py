"""Create the directory that the command's PYTHONPATH points to, with all code that runs inside its Pythons.

It is self-contained and belongs to one run: the command may use other interpreters, other environments, and containers
that see only the run folder of this installation. Only PYTHONPATH changes, because launchers that copy it to other
machines drop unknown variables.
"""

from __future__ import annotations

import _imp
import fcntl
import importlib.util
import marshal
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path

import perfwrap
from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import DEFAULT_MAX_OVERHEAD, EditedFile, Trial
from perfwrap.monitor_options import DEFAULT_BUDGET_MIB, MEBIBYTE
from perfwrap.run_folder import IGNORED_BY_GIT, RunFolder

DIRECTORY_MODE, FILE_MODE = 0o755, 0o644
SHIM = "sitecustomize.py"
SHIMS = (SHIM, "usercustomize.py")
"""The same file under both names: the second is found if another sitecustomize hides the first."""
ATTACHED = "attached.py"
"""The script for a running program."""
WATCHED = "watched"
"""A file next to the settings, locked while such a program is watched."""
PACKAGE = "perfwrap_recorder"
BYTE_CODE = "__pycache__"
CODE = "code-" + importlib.util.MAGIC_NUMBER.hex()
"""The file with the byte code of the recorder for this version of Python; own_modules.py reads it."""
HEADER_BYTES = 16
"""Bytes before the code in Python's files of byte code: version, flags, time and size of the source."""
SETTINGS = "settings"
MARSHAL_VERSION = 2
"""The newest that each Python reads which may run the recorder."""
OVERLAY = "overlay"
"""The file with the edited source files; the recorder's overlay.py reads it."""
NO_TRIAL = Trial()


def prepare(
    folder: RunFolder,
    environment: Mapping[str, str],
    *,
    nvtx: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_MIB * MEBIBYTE,
    sample_hz: float = 0.0,
    max_overhead: float = DEFAULT_MAX_OVERHEAD,
    ptracer_pid: int = 0,
    window: str = "",
    window_detail: Sequence[str] = (),
    window_ranks: str = "0",
    trial: Trial = NO_TRIAL,
    overlay: Sequence[EditedFile] = (),
    host: str | None = None,
    watched: bool = False,
    inspect: bool = False,
) -> dict[str, str]:
    """Fill ``folder.inject`` and return the additional environment variables of the command.

    ``environment`` is that of the command without perfwrap. ``host`` replaces the machine's name in file names;
    ``sample_hz`` is how often the recorder samples lines of Python, 0 for never; ``ptracer_pid`` the only process that
    may attach to the command; ``window…`` and ``trial`` are as in Options; with ``watched`` the recorder ends with
    ``hold_watch``, with ``inspect`` it opens dataflow windows. Raises
    PerfwrapError if no place is suitable, OSError if it cannot be written.
    """
    previous = environment.get("PYTHONPATH", "")
    hook = _make_hook(folder)
    # It starts with a digit, so it is not the name of a module; the rest is random.
    data = hook / ("0" + os.urandom(8).hex())
    constants = {"DATA": data.name, "RUN_FOLDER": str(folder.path.absolute()), "WAS_UNSET": not previous}
    constants["HAS_OVERLAY"] = bool(overlay)
    shim = _fill_in((_source() / SHIM).read_text(encoding="utf-8"), constants)
    settings = {
        "run_dir": folder.path.absolute(),
        "host": host or "",
        "budget_bytes": budget_bytes,
        "nvtx": int(nvtx),
        "sample_hz": sample_hz,
        "max_overhead": max_overhead,
        "ptracer_pid": ptracer_pid,
        "window": window,
        "window_detail": ",".join(window_detail),
        "window_ranks": window_ranks,
        "changes": " ".join(trial.changes),
        "trial_steps": trial.steps,
        "trial_warm_up": trial.warm_up,
        "trial_precision": trial.precision,
        "trial_writes": "allow" if trial.writes else "skip",
        "trial_values": "" if trial.values_seed is None else trial.values_seed,
        "trial_perturbation": trial.perturbation,
        "trial_seconds": trial.seconds,
        "original_pythonpath_empty": int(not previous),
        "watched": int(watched),
        "inspect": int(inspect),
    }
    _make_directory(data)
    code: dict[str, tuple[bytes, bytes]] = {}
    _copy_sources(str(_source() / PACKAGE), str(data / PACKAGE), code)
    _write_bytes(str(data / CODE), marshal.dumps(code))
    if overlay:
        edited = {str(file.path.absolute()): (file.before, file.after) for file in overlay}
        _write_bytes(str(data / OVERLAY), marshal.dumps(edited, MARSHAL_VERSION))
    # Otherwise Python creates them with the program's umask; if it is permissive, others could add byte code.
    for sources in (hook, data / PACKAGE):
        _make_directory(sources / BYTE_CODE)
    _write(data / SETTINGS, "".join(f"{key}={value}\n" for key, value in settings.items()))
    for name in SHIMS:
        _write(hook / name, shim)
    _write(hook / ".gitignore", IGNORED_BY_GIT)
    # An empty element means the current directory, so none may be added.
    return {"PYTHONPATH": f"{hook}{os.pathsep}{previous}" if previous else str(hook)}


def name_ptracer(folder: RunFolder, pid: int) -> None:
    """Let the recorders permit this process to read their processes; called before the command starts."""
    (settings,) = folder.inject.glob(f"*/{SETTINGS}")
    settings.write_bytes(settings.read_bytes().replace(b"\nptracer_pid=0\n", b"\nptracer_pid=%d\n" % pid))


def add_attached(folder: RunFolder) -> Path:
    """Write the script for a running program, and return its path."""
    hook = folder.inject.resolve()
    text = (_source() / ATTACHED).read_text(encoding="utf-8")
    _write(hook / ATTACHED, text.replace('HOOK = ""', f"HOOK = {ascii(str(hook))}", 1))
    return hook / ATTACHED


def hold_watch(folder: RunFolder) -> int:
    """Start to watch: recorders that are ``watched`` end when the returned descriptor is closed."""
    (settings,) = folder.inject.glob(f"*/{SETTINGS}")
    descriptor = os.open(settings.with_name(WATCHED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _source() -> Path:
    """Return where the files are: inside the wheel, or next to ``wrapper/`` in a repository."""
    package = Path(perfwrap.__file__).resolve().parent
    return found if (found := package / "_inject").is_dir() else package.parents[1] / "inject"


def _make_hook(folder: RunFolder) -> Path:
    """Make the directory: a private one elsewhere, and a link to it, if PYTHONPATH cannot contain its path."""
    wanted = folder.inject.absolute()
    if "\n" in str(wanted):
        raise PerfwrapError(
            f"The path {str(wanted)!r} contains a line break.", "Choose another with --out DIR."
        )
    if os.pathsep not in str(wanted):
        _make_directory(wanted)
        return wanted
    hook = Path(tempfile.mkdtemp(prefix="perfwrap-")).absolute()
    if os.pathsep in str(hook):
        raise PerfwrapError(
            f"Neither {wanted} nor {hook} can be in PYTHONPATH: both contain a '{os.pathsep}'.",
            "Choose another run folder with --out DIR.",
        )
    wanted.symlink_to(hook, target_is_directory=True)
    return hook


def _fill_in(shim: str, constants: Mapping[str, object]) -> str:
    """Return the shim with its constants; plain ASCII, which also Python 2 reads."""
    lines = shim.splitlines(keepends=True)
    for name, value in constants.items():
        (number,) = (at for at, line in enumerate(lines) if line.startswith(f"    {name} = "))
        lines[number] = f"    {name} = {ascii(value)}\n"
    return "".join(lines)


def _copy_sources(source: str, target: str, code: dict[str, tuple[bytes, bytes]], under: str = "") -> None:
    """Copy the Python files of a package and its parts, and nothing else; add their byte code to ``code``.

    There are about a hundred files, so this does without ``pathlib`` and ``shutil``.
    """
    _make_directory(Path(target))
    place = under + target[target.rfind("/") + 1 :] + "/"
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            with open(entry.path, "rb") as file:
                text, written = file.read(), os.fstat(file.fileno())
            _write_bytes(f"{target}/{entry.name}", text)
            found = _byte_code(entry.path, written)
            if found is not None:
                code[place + entry.name] = _imp.source_hash(0, text), found
        elif entry.name != BYTE_CODE and entry.is_dir():
            _copy_sources(entry.path, f"{target}/{entry.name}", code, place)


def _byte_code(path: str, written: os.stat_result) -> bytes | None:
    """Return the byte code that Python keeps of a source, None if it does not keep it; ``written`` is of the source."""
    kept = importlib.util.cache_from_source(path)
    # What is not optimised is for all: the recorder has no assertions.
    header = importlib.util.MAGIC_NUMBER + b"".join(
        (number & 0xFFFFFFFF).to_bytes(4, "little") for number in (0, int(written.st_mtime), written.st_size)
    )
    for _ in range(2):
        try:
            with open(kept, "rb") as file:
                found = file.read()
        except OSError:
            found = b""
        if found[:HEADER_BYTES] == header:
            return found[HEADER_BYTES:]
        if sys.dont_write_bytecode or not os.access(path[: path.rfind("/")], os.W_OK):
            return None
        SourceFileLoader("", path).get_code("")  # once after each installation: compiles and keeps it
    return None


def _make_directory(path: Path) -> None:
    path.mkdir()
    path.chmod(DIRECTORY_MODE)  # the umask reduces the mode of mkdir


def _write(path: Path, text: str) -> None:
    _write_bytes(str(path), text.encode("utf-8", "surrogateescape"))


def _write_bytes(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), FILE_MODE)
