"""Files that only their owner may read, and safe reading of files that another user may have created."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from perfwrap.errors import PerfwrapError

MAX_LOOKED_AT = 100_000
"""The maximum number of files of a run folder that are checked before it is read."""


MAY_LEAD_OUT = ("inject", ".inject")
"""A link if the path of the run folder contains a colon; its target is never read."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces ``path`` at the end, so that no reader sees an incomplete file.

    Its name is random, so no other user can place a link there; a link at ``path`` is replaced, not followed.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(name, path)  # noqa: PTH105 (mkstemp returns a str)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def opener(path: str, flags: int) -> int:
    """Open a file that only its owner may read; for ``opener`` of ``open``."""
    return os.open(path, flags, 0o600)


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text in UTF-8 in place of ``path``."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", errors))


def open_plain(path: Path) -> BinaryIO:
    """Return a file that is open for reading; OSError if it is not a regular file: a pipe would never end."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path.name} is not a regular file")
    return file


def read_plain(path: Path, most: int) -> bytes:
    """Return a file's content; OSError if it is not a regular file, or larger than ``most``."""
    with open_plain(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path.name} is larger than {most >> 20} MiB")
    return content


def write_plain(path: Path, text: str, append: bool = False) -> None:
    """Write a text in UTF-8 to a file that the user gave; OSError for a pipe without a reader, instead of blocking.

    A pipe with a reader and a terminal are written like a file.
    """
    with open(path, "ab" if append else "wb", opener=_without_waiting) as file:
        os.set_blocking(file.fileno(), True)
        file.write(text.encode("utf-8", "replace"))


def why_not(error: OSError) -> str:
    """Return why a file could not be written; the system's own message about a pipe is not clear."""
    return (
        "it is a pipe or socket without a reader"
        if error.errno == errno.ENXIO
        else str(error.strerror or error)
    )


def leads_somewhere(name: str) -> bool:
    """Return whether this path exists; False for an invalid name, such as 5,000 characters."""
    try:
        return bool(name) and Path(name).exists()
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def restrict(folder: Path, but: str) -> None:
    """Remove the permissions of other users from the files in a folder, except below ``but``."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name != but]
        for name in (*folders, *files):
            path = Path(place, name)
            found = path.lstat()
            if not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
                path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def demand_plain(folder: Path) -> None:
    """Raise PerfwrapError if a folder contains anything other than files and folders: reading a pipe would block.

    Also raises PerfwrapError if a link points out of it, to files that its sender cannot read but this user can; and if
    it or a folder in it belongs to another user and is not readable.
    """
    looked_at = 0
    inside = folder.resolve()
    for place, folders, files in os.walk(folder, onerror=_refuse_closed):
        folders.sort()
        for name in files:
            looked_at += 1
            path = Path(place, name)
            try:
                mode = path.stat().st_mode
            except OSError:
                continue  # A broken link, or a file that no longer exists: reading it reports that.
            if not stat.S_ISREG(mode):
                raise PerfwrapError(
                    f"{path} is neither a file nor a folder, so it does not belong in a run folder.",
                    "Delete it if you know where it comes from; perfwrap did not create it.",
                )
        for path in (Path(place, name) for name in (*folders, *files)):
            leads_out = path.is_symlink() and not path.resolve().is_relative_to(inside)
            if leads_out and path.name not in MAY_LEAD_OUT:
                raise PerfwrapError(
                    f"{path} is a link that points out of the run folder.",
                    "Delete it if you know where it comes from; perfwrap did not create it.",
                )
        if looked_at > MAX_LOOKED_AT:
            return


def _refuse_closed(error: OSError) -> None:
    """Raise PerfwrapError for a folder that is not readable; one that no longer exists is ignored."""
    if isinstance(error, PermissionError):
        raise PerfwrapError(
            f"Cannot read {error.filename}: only the owner may read a run folder.",
            "Ask its owner for a copy of the whole run folder.",
        ) from error
