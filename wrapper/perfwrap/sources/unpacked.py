"""Opens files that may be gzipped; everything before damage can be read."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import IO

GZIP = b"\x1f\x8b"
PACKED = 1 << 18
"""Compressed bytes that are read at once."""
STEP = 1 << 16
"""Bytes that are decompressed at once: at most this much is lost before damage."""
WITH_HEADER = 31
"""Makes zlib expect gzip's header and checksum."""


FREELY_UNPACKED, LARGEST_RATIO = 256 << 20, 200
"""Bytes that any file may decompress to; above, a maximum ratio applies. Recordings are compressed to 10 %, a file of
zeros to 0.1 %: that is not a recording, but made to exhaust memory or disk."""


class Damaged(Exception):
    """Compressed data are truncated, invalid, or decompress to far too much."""


class Unpacked:
    """A file's content, decompressed if it is gzipped."""

    def __init__(self, path: Path) -> None:
        """Open the file; OSError if that fails."""
        self._file: IO[bytes] = path.open("rb")
        self._packed = self._file.read(len(GZIP)) == GZIP
        self._file.seek(0)
        self._decoder = zlib.decompressobj(WITH_HEADER)
        self._waiting = b""
        self._read = self._unpacked = 0

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return about ``size`` bytes, none at the end; Damaged if there are no bytes before the damage."""
        if not self._packed:
            return self._file.read(size)
        found, total = [], 0
        try:
            while total < size and (more := self._unpack()):
                found.append(more)
                total += len(more)
        except (zlib.error, Damaged) as error:
            if not found:
                raise Damaged(str(error)) from error
        return b"".join(found)

    def _unpack(self) -> bytes:
        """Return the next bytes, none at the end."""
        while True:
            if not self._waiting:
                self._waiting = self._file.read(PACKED)
                self._read += len(self._waiting)
            if self._decoder.eof:
                # A file may consist of several gzip members, with zeros after the last one.
                self._waiting = self._waiting.lstrip(b"\0")
                if not self._waiting:
                    return b""
                self._decoder = zlib.decompressobj(WITH_HEADER)
            if not self._waiting:
                raise Damaged("the compressed data are truncated")
            found = self._decoder.decompress(self._waiting, STEP)
            self._waiting = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            self._unpacked += len(found)
            if is_bomb(self._read, self._unpacked):
                raise Damaged("it decompresses to far more data than a recording has")
            if found:
                return found


def is_bomb(packed: int, unpacked: int) -> bool:
    """Return whether a file decompresses to far more data than a recording has."""
    return unpacked > max(FREELY_UNPACKED, LARGEST_RATIO * packed)


def whole(path: Path, most: int) -> bytes:
    """Return a file's content; OSError if it cannot be opened, ValueError if it is damaged or larger than ``most``."""
    found = bytearray()
    try:
        with Unpacked(path) as file:
            while piece := file.read(min(PACKED, most + 1 - len(found))):
                found += piece
                if len(found) > most:
                    raise ValueError(f"it is larger than {most >> 20} MiB")
    except Damaged as error:
        raise ValueError(str(error)) from error
    return bytes(found)


def first_bytes(path: Path, size: int) -> bytes:
    """Return the first bytes of a file's content, as many as can be read; OSError if it cannot be opened."""
    with Unpacked(path) as file:
        try:
            return file.read(size)
        except Damaged:
            return b""
