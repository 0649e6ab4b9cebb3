from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources import unpacked
from perfwrap.sources.nsys.nsys_file import opened


def test_what_unpacks_to_far_more_than_a_recording_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "FREELY_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(8 << 20)))
    with pytest.raises(ValueError, match="far more data than a recording"):
        unpacked.whole(path, 1 << 30)
    with pytest.raises(PerfwrapError, match="far more data than a recording"), opened(path):
        pass


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 9000))
    assert unpacked.whole(path, 4 << 20) == bytes(range(256)) * 9000
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        unpacked.whole(path, 1 << 20)


def test_a_truncated_packed_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 9000)[:-20])
    with pytest.raises(ValueError, match="truncated"):
        unpacked.whole(path, 4 << 20)
