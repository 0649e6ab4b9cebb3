"""``%%perfwrap``: runs a cell in the kernel with the recorder in it, and shows the report below the cell.

`perfwrap attach` watches the kernel from a process of its own: it makes the run folder, samples stacks and machine, and
holds the lock as long as the recorder shall record. The kernel loads the recorder by itself, in the way of
``sys.remote_exec``, so this works on every Python; afterwards the recorder takes itself out. The report is made by
another process: the kernel imports neither polars nor numpy for it.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfwrap import run_folder
from perfwrap.launch import remote
from perfwrap.notebook.inline_report import report_html
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say

NAME = "perfwrap"
PATIENCE_SECONDS = 60
COMMAND = (sys.executable, "-m", "perfwrap")


def load(shell: Any) -> None:
    """Add ``%%perfwrap`` to IPython."""
    shell.register_magic_function(lambda line, cell: run_cell(shell, line, cell), "cell", NAME)


def unload(shell: Any) -> None:
    """Remove it."""
    shell.magics_manager.magics["cell"].pop(NAME, None)


@dataclass(frozen=True)
class CellReport:
    """What a notebook shows of the run of a cell."""

    folder: Path
    """The run folder."""
    text: str
    """The report as `perfwrap report` prints it."""
    html: str

    def __repr__(self) -> str:
        """Return the report for terminals."""
        return self.text

    def _repr_html_(self) -> str:
        """Return the report for notebooks."""
        return self.html


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell with the recorder, and show its report; a cell that fails fails as without perfwrap."""
    words = _parsed(line)
    if _awaits(shell.transform_cell(cell)):
        raise ValueError(
            f"%%{NAME} cannot record a cell with `await` outside of a function: the kernel's event loop is running. "
            f"Remove %%{NAME}, or train in a cell without `await`."
        )
    # Another cell magic must come first, but for empty lines.
    first = "" if cell.lstrip().startswith("%%") else f"# %%{NAME}{' ' + line if line else ''}"
    source = first + "\n" + cell.removesuffix("\n")
    watcher = _Watcher(words)
    problem = watcher.load()
    try:
        with _quiet_as(shell, cell):
            result = shell.run_cell(source, store_history=False)
    finally:
        ended = watcher.end()
    if problem or ended is None:
        say(f"perfwrap: this cell was not recorded: {problem or watcher.said.strip()}", sys.stderr)
    else:
        _show(ended)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        raise _shown(error) from None


def _awaits(code: str) -> bool:
    """Return whether code awaits something outside of its functions."""
    try:
        made = compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):
        return False
    return bool(made.co_flags & inspect.CO_COROUTINE)


@contextmanager
def _quiet_as(shell: Any, cell: str) -> Iterator[None]:
    """Show no result of a cell that ends with a semicolon: IPython looks for it in the cell with the magic."""
    hook = shell.displayhook
    if not hook.semicolon_at_end_of_expression(cell):
        yield
        return
    hook.quiet = lambda: True
    try:
        yield
    finally:
        del hook.quiet


def _parsed(line: str) -> list[str]:
    """Return the options of `perfwrap attach` for the words after ``%%perfwrap``."""
    parser = argparse.ArgumentParser(f"%%{NAME}", add_help=False, description="Record this cell.")
    parser.add_argument("--name", default="cell")
    parser.add_argument("--out")
    try:
        given = parser.parse_args(shlex.split(line))
    except SystemExit:
        raise ValueError(f"Usage: %%{NAME} [--name NAME] [--out DIR]") from None
    return ["--name", given.name, *(["--out", given.out] if given.out else [])]


class _Watcher:
    """The process of `perfwrap attach` that watches this kernel."""

    def __init__(self, words: list[str]) -> None:
        """Start it; it prints the paths of the script with the recorder and of the run folder."""
        self.said = ""
        command = [*COMMAND, "attach", str(os.getpid()), "--offer", "--no-report", *words]
        # A group of its own: an interrupt of the kernel is for the cell.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._script, self._folder = (self._process.stdout.readline().rstrip("\n") for _ in range(2))

    def load(self) -> str:
        """Load the recorder into this process; return why it has none, empty if it has or there is no script."""
        if not self._script:
            return ""
        try:
            import torch  # noqa: F401 - the recorder instruments what is imported
        except ImportError:
            return "torch is not installed in this kernel's environment"
        code = compile(Path(self._script).read_text(encoding="utf-8"), self._script, "exec")
        exec(code, {"__builtins__": __builtins__})  # noqa: S102 # nosec B102 # a file of ours
        _, failed = remote.read_answers(RunFolder(Path(self._folder)))
        return failed.get(os.getpid(), "")

    def end(self) -> Path | None:
        """End the recording, have the recorder take itself out, and return the run folder; None if there is none."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            _, self.said = self._process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, self.said = self._process.communicate()
        detaching = sys.modules.get("perfwrap_recorder.detaching")
        if detaching is not None:
            detaching.look()  # now, and not only at the next step
        folder = Path(self._folder)
        return folder if self._folder and (folder / run_folder.MANIFEST).is_file() else None


def _show(folder: Path) -> None:
    """Show the report of a run; print why if there is none."""
    from IPython import display as shown

    display: Any = shown.display
    done = subprocess.run(
        [*COMMAND, "report", str(folder), "--html"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    try:
        document = json.loads((folder / run_folder.DIAGNOSIS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        say(f"perfwrap: no report: {done.stderr.strip() or done.stdout.strip()}", sys.stderr)
        return
    display(CellReport(folder, done.stdout.rstrip("\n"), report_html(document, folder)))


def _shown(error: BaseException) -> Exception:
    """Return an exception with the name and text of one whose traceback IPython has printed already."""
    kind = type(error)
    quiet = type(kind.__name__, (Exception,), {"_render_traceback_": lambda self: []})
    found: Exception = quiet(*error.args)
    return found
