"""Files that are their owner's alone, and files that somebody else may have put where we read: plain ones, or none."""

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

MOST_LOOKED_AT = 100_000
"""Files of a run folder; more are not looked at before it is read."""


MAY_LEAD_OUT = ("inject", ".inject")
"""Is a link where the path of a run folder has a colon; nobody reads what is behind it."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a new file that takes the place of ``path`` at the end, so that nobody sees half of it.

    Nobody can foresee its name and put a link to another file there; of a link at ``path`` itself only the link goes.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(name, path)  # noqa: PTH105 (mkstemp's name is a text)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def opener(path: str, flags: int) -> int:
    """Open a file as ``open`` does with this ``opener``, made for its owner alone."""
    return os.open(path, flags, 0o600)


def replace_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text in UTF-8 in place of ``path``."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", errors))


def open_plain(path: Path) -> BinaryIO:
    """Return a file that is open for reading; OSError where it is no plain file: a pipe would never end."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (whoever asks for it closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path.name} is not a file")
    return file


def read_plain(path: Path, most: int) -> bytes:
    """Return a file's content; OSError where it is no plain file, or larger than that."""
    with open_plain(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path.name} is larger than {most >> 20} MiB")
    return content


def write_plain(path: Path, text: str, append: bool = False) -> None:
    """Write a text in UTF-8 to a file that the user names; OSError for a pipe that nobody reads, not a wait for ever.

    A pipe with a reader and a terminal take the text as a file does.
    """
    with open(path, "ab" if append else "wb", opener=_without_waiting) as file:
        os.set_blocking(file.fileno(), True)
        file.write(text.encode("utf-8", "replace"))


def why_not(error: OSError) -> str:
    """Return why a file could not be written, in words; of a pipe the system says only that there is no such device."""
    return (
        "it is a pipe or socket that nobody reads"
        if error.errno == errno.ENXIO
        else str(error.strerror or error)
    )


def leads_somewhere(name: str) -> bool:
    """Say whether there is something of that name; what cannot be one, such as 5,000 characters, is nothing."""
    try:
        return bool(name) and Path(name).exists()
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def restrict(folder: Path, but: str) -> None:
    """Take from others what a tool has let them do with its files in a folder; what is below ``but`` is left alone."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name != but]
        for name in (*folders, *files):
            path = Path(place, name)
            found = path.lstat()
            if not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
                path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def demand_plain(folder: Path) -> None:
    """Raise PerfwrapError where a folder holds what is neither file nor folder: a pipe would be waited for for ever.

    PerfwrapError, too, where a link leads out of it, to what its sender cannot read but we can; and where it or a
    folder in it is somebody else's and closed to us.
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
                continue  # A link to nowhere, or gone by now: whoever reads it says so.
            if not stat.S_ISREG(mode):
                raise PerfwrapError(
                    f"{path} is neither a file nor a folder, as nothing in a run folder should be.",
                    "Remove it, if you know where it comes from; perfwrap did not make it.",
                )
        for path in (Path(place, name) for name in (*folders, *files)):
            leads_out = path.is_symlink() and not path.resolve().is_relative_to(inside)
            if leads_out and path.name not in MAY_LEAD_OUT:
                raise PerfwrapError(
                    f"{path} is a link that leads out of the run folder.",
                    "Remove it, if you know where it comes from; perfwrap did not make it.",
                )
        if looked_at > MOST_LOOKED_AT:
            return


def _refuse_closed(error: OSError) -> None:
    """Raise PerfwrapError for a folder that may not be looked into; one that is gone by now is nobody's fault."""
    if isinstance(error, PermissionError):
        raise PerfwrapError(
            f"{error.filename} may not be read: run folders are their owner's alone.",
            "Ask its owner for a copy of the whole run folder.",
        ) from error
