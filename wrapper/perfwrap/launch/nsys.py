"""Nsight Systems as the prefix of the command: a timeline of some steps, exported to SQLite without the environment.

The options are described in NVIDIA's Nsight Systems User Guide, "CLI Profile Command Switch Options". What the
installed version has is read from its own help before the run: newer options are used where it
has them, and it is said what it lacks. Only some steps are captured: the recorder pushes an NVTX range around them,
which starts and ends the capture. By default nsys would send the command SIGTERM at the end of that range
(``--capture-range-end=stop-shutdown --kill=sigterm``) and wait for all processes that the command leaves behind
(``--wait=all``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import option_name
from perfwrap.launch.tool_help import ToolHelp, ask
from perfwrap.redaction import masked, masked_words

if TYPE_CHECKING:
    import sqlite3

PROGRAM = "nsys"
PACKAGE = "NVIDIA Nsight Systems"
INSTALL = (
    "It is in the CUDA toolkit (see /usr/local/cuda/bin), in the package nsight-systems of NVIDIA's apt and dnf "
    "repositories, and at https://developer.nvidia.com/nsight-systems."
)
REPORT, UNFINISHED, EXPORT = "nsys.nsys-rep", "nsys.qdstrm", "nsys.sqlite"
WINDOW = "perfwrap_window"
"""The NVTX range that the recorder pushes around the steps to capture."""
WINDOW_STEPS = "10:20"
"""The number of steps before the window, and in it."""

DEFAULTS = (
    ("--trace", "-t", "cuda,nvtx,osrt,cudnn,cublas"),
    # The stacks come from other samplers; these would cost more than everything else.
    ("--sample", "-s", "none"),
    ("--cpuctxsw", "", "none"),
    ("--capture-range", "-c", "nvtx"),
    ("--nvtx-capture", "-p", f"{WINDOW}@*"),
    ("--capture-range-end", "", "stop"),
    ("--kill", "", "none"),
    ("--wait", "", "primary"),
    ("--force-overwrite", "-f", "true"),
)
"""Long and short name of each option, and its default."""
OF_RANGES = ("--nvtx-capture", "--capture-range-end")
"""Options that nsys accepts only if a range starts the capture; these belong to perfwrap's range."""
NEWER = (
    # Timing events on the GPU costs time and can make streams wait for each other (nsys 2025 warns about it).
    ("--cuda-event-trace", "", "false"),
    # Without the environment in the report; the export is redacted in any case (since 2025).
    ("--discard-environment", "", "true"),
)
"""The same for options that are used if the installed version has them."""
ESSENTIAL = ("--capture-range", "--capture-range-end", "--nvtx-capture", "--kill")
"""Options without which nsys would capture the whole run, or end the command."""
OLDEST = "2021.4"
"""The first version with --capture-range-end."""
OURS = ("--output", "-o", "--export")
"""Options that perfwrap needs for itself."""

REDACTED = "(redacted)"
SECRETS = (
    ("TARGET_INFO_SYSTEM_ENV", "lower(name) LIKE '%environment%'"),
    ("META_DATA_CAPTURE", "upper(name) LIKE '%ENVIRONMENT%'"),
)
"""Where exports contain environment variables with their values."""
KEPT_FILES = (("ProcessStreams", "contentId"), ("ANALYSIS_FILE", "contentId"))
"""Files that nsys stores as texts, by their ids: output of processes, and /proc/PID/environ of each."""
TEXTS = (
    ("META_DATA_CAPTURE", "value"),
    ("TARGET_INFO_SYSTEM_ENV", "value"),
    ("StringIds", "value"),
    ("PROCESSES", "name"),
)
"""Where exports contain command lines and other texts that may contain a secret."""
ARGUMENT = re.compile(r"(?P<process>.*)ARGUMENT_(?P<number>\d+)")
"""The name of a row of META_DATA_CAPTURE with one word of the command line."""
ASSIGNMENT = re.compile(r"^\s*([A-Za-z_][A-Za-z0-9_]*)=")


class Nsys:
    """``nsys profile``, and ``nsys export`` at the end."""

    name = PROGRAM

    def __init__(self, options: tuple[str, ...]) -> None:
        """Take the user's additional options."""
        self._options = options
        self._help = ToolHelp()

    def examine(self, path: str, environment: Mapping[str, str]) -> list[str]:
        """Ask the installed version for its options; return what it lacks, in sentences.

        PerfwrapError if it lacks an option without which no steps can be captured.
        """
        self._help = ask(path, ["profile", "--help"], environment)
        missing = self._help.lacks(name for name, _, _ in self._chosen(DEFAULTS))
        needed = [name for name in missing if name in ESSENTIAL]
        if needed:
            raise PerfwrapError(
                f"The installed nsys {self._help.version} has no {', '.join(needed)}, which --nsys needs.",
                f"Install {PACKAGE} {OLDEST} or newer. {INSTALL}",
            )
        return [f"the installed nsys {self._help.version} has no {', '.join(missing)}"] if missing else []

    def _chosen(self, options: tuple[tuple[str, str, str], ...]) -> list[tuple[str, str, str]]:
        """Return the options that the user does not give."""
        given = set(map(option_name, self._options))
        if given & {"--capture-range", "-c"}:
            given |= set(OF_RANGES)
        return [option for option in options if not given & {*option[:2]} - {""}]

    def words(self, tools: Path) -> list[str]:
        """Return ``nsys profile`` with its options."""
        missing = self._help.lacks(name for name, _, _ in DEFAULTS)
        newer = tuple(option for option in NEWER if self._help.has(option[0]))
        chosen = [option for option in self._chosen(DEFAULTS + newer) if option[0] not in missing]
        defaults = [f"{name}={value}" for name, _, value in chosen]
        return [PROGRAM, "profile", *defaults, *self._options, f"--output={tools / REPORT}"]

    def variables(self) -> dict[str, str]:
        """Return the variables that request the window, which a range of torch's NVTX functions starts."""
        return {"PERFWRAP_NVTX_WINDOW": WINDOW_STEPS, "NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}

    def finish(self, tools: Path, run: Callable[[list[str]], int]) -> list[str]:
        """Export the report, remove the environment's values from the export, and delete the report, which has them."""
        # Files that nsys could not convert into a report contain them, too.
        (tools / UNFINISHED).unlink(missing_ok=True)
        report, export = tools / REPORT, tools / EXPORT
        if not report.exists():
            few = f"no process took more than {WINDOW_STEPS.partition(':')[0]} steps with an optimizer"
            whole = "to capture the whole run: --nsys=--capture-range=none"
            return [f"nsys captured nothing: {few} ({whole}), or it failed: see {tools / 'nsys.log'}"]
        words = [
            PROGRAM,
            "export",
            "--type=sqlite",
            "--force-overwrite=true",
            f"--output={export}",
            str(report),
        ]
        status = run(words)
        if status or not export.exists():
            return [f"nsys could not export {report}; see {tools / 'nsys.log'}"]
        problem = redact(export)
        if problem is not None:
            export.unlink()
            report.unlink()
            return [problem]
        report.unlink()
        return []


def redact(export: Path) -> str | None:
    """Overwrite the environment's values in an export; return what went wrong."""
    import sqlite3  # every launcher imports this file, and nearly none has an export

    try:
        connection = sqlite3.connect(export)
        connection.text_factory = lambda value: value.decode("utf-8", "replace")
        try:
            # Otherwise freed pages would keep the old values.
            connection.execute("PRAGMA secure_delete = ON")
            for table, condition in SECRETS:
                _redact_table(connection, table, condition)
            _redact_files(connection)
            _mask_arguments(connection)
            _mask_texts(connection)
            connection.commit()
            connection.execute("VACUUM")
        finally:
            connection.close()
        os.chmod(export, 0o600)  # noqa: PTH101 (as the folder's other files)
    except sqlite3.Error as error:
        return f"the export of nsys was deleted, because environment variables could not be removed from it: {error}"
    return None


def _redact_files(connection: sqlite3.Connection) -> None:
    """Overwrite the contents of files, and other texts that look like the environment of a process."""
    change = "UPDATE StringIds SET value = ? WHERE value <> '' AND "
    if not _has(connection, "StringIds", "value"):
        return
    for table, column in KEPT_FILES:
        if _has(connection, table, column):
            chosen = f"{change} id IN (SELECT {column} FROM {table})"  # nosec B608 # constants of this file
            connection.execute(chosen, (REDACTED,))
    connection.execute(f"{change} instr(CAST(value AS BLOB), x'00') > 0", (REDACTED,))
    if _has(connection, "ANALYSIS_FILE", "content"):
        connection.execute("UPDATE ANALYSIS_FILE SET content = ?", (REDACTED,))


def _mask_arguments(connection: sqlite3.Connection) -> None:
    """Mask the values of secret options; each is in the row after its option."""
    if not _has(connection, "META_DATA_CAPTURE", "value"):
        return
    commands: dict[str, list[tuple[int, int, str]]] = {}
    for row, name, value in connection.execute("SELECT rowid, name, value FROM META_DATA_CAPTURE").fetchall():
        found = ARGUMENT.fullmatch(str(name))
        if found is not None:
            commands.setdefault(found["process"], []).append((int(found["number"]), row, str(value)))
    for words in commands.values():
        words.sort()
        kept = masked_words([word for _, _, word in words])
        changes = [(new, row) for new, (_, row, old) in zip(kept, words, strict=True) if new != old]
        connection.executemany("UPDATE META_DATA_CAPTURE SET value = ? WHERE rowid = ?", changes)


def _mask_texts(connection: sqlite3.Connection) -> None:
    """Mask texts of the command that look like a secret."""
    connection.create_function("masked", 1, lambda text: masked(text) if isinstance(text, str) else text)
    for table, column in TEXTS:
        if _has(connection, table, column):
            new = f"masked({column})"
            connection.execute(f"UPDATE {table} SET {column} = {new} WHERE {new} <> {column}")  # nosec B608 # constants


def _has(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Return whether a table has a column."""
    return any(row[1] == column for row in connection.execute(f"PRAGMA table_info({table})"))


def _redact_table(connection: sqlite3.Connection, table: str, condition: str) -> None:
    """Overwrite the values of one table; names of variables in a row are kept."""
    if not _has(connection, table, "value"):
        return
    rows = connection.execute(f"SELECT rowid, value FROM {table} WHERE {condition}").fetchall()  # nosec B608 # constants
    for row, value in rows:
        found = ASSIGNMENT.match(value or "") if table == "META_DATA_CAPTURE" else None
        text = f'{found[1]}="{REDACTED}"' if found else REDACTED
        connection.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (text, row))  # nosec B608 # constants
