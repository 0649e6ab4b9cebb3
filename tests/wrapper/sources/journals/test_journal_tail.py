from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perfwrap.journal_format import DESCRIBE, HEADER, RECORD, SPANS, SUM
from perfwrap.sources.journals.journal_file import Unreadable, read_file
from perfwrap.sources.journals.journal_tail import JournalTail

MANY = 1 << 20
FRONT = 1 + 7
"""The header and the slots that a recorder keeps for the end."""


def content(run: Any, steps: int = 300) -> bytes:
    """Return a journal as a recorder writes it, the slots in front kept free."""
    journal = run.journal(pid=4, rank=1)
    journal.fact("loader/1/num_workers", 0)
    for number in range(steps):
        if number % 100 == 0:
            journal.span("loader_start", 5, "loader/1", line="train.py:9:main")
        journal.step()
        journal.sample("host", "runnable_tasks", float(number))
    written = journal.write().read_bytes()
    journal.path.unlink()
    run.journals.clear()
    return written[: HEADER.size] + bytes(7 * RECORD.size) + written[HEADER.size :]


def begun(tmp_path: Path, data: bytes) -> tuple[Path, JournalTail]:
    path = tmp_path / "here-4-7-0.pwj"
    path.write_bytes(data)
    return path, JournalTail(path)


def by_start(records: np.ndarray[Any, Any]) -> list[Any]:
    return sorted(tuple(record) for record in records.tolist() if record[5] != DESCRIBE["TEXT"])


def test_a_journal_that_is_read_while_it_grows_has_the_same_content_as_one_read_at_once(
    run: Any, tmp_path: Path
) -> None:
    data = content(run)
    path, tail = begun(tmp_path, data[: HEADER.size])
    for end in [*range(HEADER.size, len(data), 3001), len(data)]:
        path.write_bytes(data[:end] + bytes(8192))  # cut in the middle of a record, before an untouched rest
        tail.refresh(MANY)
    path.write_bytes(data)
    tail.refresh(MANY)
    whole, followed = read_file(path), tail.journal(0, alive=False)
    assert by_start(followed.records) == by_start(whole.records)
    assert followed.texts.items() <= whole.texts.items()
    assert {"role", "main", "1"} <= set(followed.texts.values())
    assert tail.role == "main"
    assert not tail.refresh(MANY)


def test_only_a_recent_part_is_kept_and_the_rest_is_counted(run: Any, tmp_path: Path) -> None:
    data = content(run, 3000)
    _, tail = begun(tmp_path, data)
    tail.refresh(500)
    kept = tail.journal(tail.begin, alive=False).records
    spans = np.sort(kept[np.isin(kept["kind"], list(SPANS.values()))], order="start")
    assert len(kept) < 1100
    assert spans["kind"][0] in (SPANS["DATA"], SPANS["LOADER_START"])
    steps = int((kept["kind"] == SPANS["OPTIMIZER"]).sum())
    assert steps + tail.count_before(tail.begin)[SPANS["OPTIMIZER"]] == 3000
    assert tail.loaders() == {"loader/1": (30, 100, 100)}


def test_reading_again_costs_the_same_however_long_the_journal_is(run: Any, tmp_path: Path) -> None:
    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    costs = []
    for steps in (10, 5000):
        path, tail = begun(tmp_path, content(run, steps) + bytes(1 << 20))
        tail.refresh(500)
        before = read_bytes()
        tail.refresh(500)
        costs.append(read_bytes() - before)
        path.unlink()
    assert costs[1] < costs[0] + 1000 < 20_000


def test_sums_that_are_updated_in_place_are_read_again(run: Any, tmp_path: Path) -> None:
    data = bytearray(content(run))
    for start in (10_000_000, 20_000_000):
        data += RECORD.pack(start, 0, 0, 0, 0, DESCRIBE["THIN"])
        data += RECORD.pack(start, 50, 1, 0, 1, SPANS["DATA"] | SUM)
    path, tail = begun(tmp_path, bytes(data))
    tail.refresh(MANY)
    struct.pack_into("<qq", data, len(data) - RECORD.size + 8, 700, 9)
    path.write_bytes(bytes(data))
    assert tail.refresh(MANY)
    sums = [record for record in tail.journal(0, alive=True).records if record["kind"] & SUM]
    assert [(int(one["duration"]), int(one["value"])) for one in sums] == [(50, 1), (700, 9)]


def test_a_slot_that_was_claimed_and_finished_later_is_not_lost(run: Any, tmp_path: Path) -> None:
    data = content(run)
    place = len(data) // 64 * 32
    record, hole = data[place : place + 32], bytes(32)
    path, tail = begun(tmp_path, data[:place] + hole + data[place + 32 :])
    tail.refresh(MANY)
    assert tail.journal(0, alive=True).torn == 1
    path.write_bytes(data[:place] + record + data[place + 32 :])
    assert tail.refresh(MANY)
    assert tail.journal(0, alive=True).torn == 0
    assert by_start(tail.journal(0, alive=False).records) == by_start(read_file(path).records)


def test_an_orderly_end_is_noticed_where_it_is_written(run: Any, tmp_path: Path) -> None:
    data = bytearray(content(run))
    path, tail = begun(tmp_path, bytes(data))
    tail.refresh(MANY)
    assert not tail.ended
    RECORD.pack_into(data, HEADER.size, 900, 0, 0, 0, 0, DESCRIBE["END"])
    path.write_bytes(bytes(data))
    assert tail.refresh(MANY)
    assert tail.ended


def test_noise_in_a_journal_is_left_out(run: Any, tmp_path: Path) -> None:
    data = content(run)
    noise = np.random.default_rng(3).integers(1, 255, 3200, dtype=np.uint8).tobytes()
    _, tail = begun(tmp_path, data + noise)
    tail.refresh(MANY)
    assert int((tail.journal(0, alive=True).records["kind"] == SPANS["OPTIMIZER"]).sum()) == 300


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        begun(tmp_path, b"hello" * 100)
