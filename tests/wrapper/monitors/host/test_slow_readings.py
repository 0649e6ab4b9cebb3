"""Memory, disks and network, from this machine and from made-up counters."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from perfwrap.monitors.host import slow_readings
from perfwrap.monitors.host.slow_readings import SlowReadings

psutil = pytest.importorskip("psutil")
SECOND = 1_000_000_000


def look(book: Any, readings: SlowReadings, *times_ns: int) -> Any:
    for time_ns in times_ns:
        book.writer.samples(time_ns, readings.read(time_ns))
    return book.read()


def test_values_come_at_once_and_rates_from_the_second_look_on(book: Any) -> None:
    readings = SlowReadings.find(book.writer)
    assert readings is not None
    content = look(book, readings, SECOND, 2 * SECOND)
    available = content.values("host", "memory_available_bytes")
    assert len(available) == 2
    assert 0 < available[0] <= psutil.virtual_memory().total
    assert 0 <= content.values("host", "page_cache_bytes")[0] <= psutil.virtual_memory().total
    assert len(content.values("host", "swap_used_bytes")) == 2
    has_swap = psutil.swap_memory().total > 0
    assert len(content.values("host", "swap_in_bytes_per_s")) == has_swap
    if slow_readings.whole_disks(psutil) is not None:
        assert len(content.values("host", "disk_read_bytes_per_s")) == 1
        assert len(content.values("host", "disk_write_bytes_per_s")) == 1
    if slow_readings.networks(psutil) is not None:
        assert len(content.values("host", "network_receive_bytes_per_s")) == 1


def test_what_lies_in_shared_memory_is_seen(book: Any) -> None:
    readings = SlowReadings.find(book.writer)
    place = Path("/dev/shm", f"perfwrap-test-{os.getpid()}")
    if readings is None or not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    look(book, readings, SECOND)
    try:
        place.write_bytes(bytes(8 << 20))
        before, after = look(book, readings, 2 * SECOND).values("host", "shm_used_bytes")
    finally:
        place.unlink()
    assert after - before > 4 << 20


class Counters:
    """Stands for psutil on a machine with these disks and interfaces."""

    Error = psutil.Error
    second = 0

    @classmethod
    def disk_io_counters(cls, perdisk: bool, nowrap: bool) -> dict[str, Any]:
        return {
            name: SimpleNamespace(read_bytes=10**at, write_bytes=2 * 10**at, busy_time=500 * cls.second)
            for at, name in enumerate(("sda", "sda1", "dm-0", "loop0"))
        }

    @classmethod
    def net_io_counters(cls, pernic: bool, nowrap: bool) -> dict[str, Any]:
        return {
            name: SimpleNamespace(bytes_recv=10**at, bytes_sent=2 * 10**at)
            for at, name in enumerate(("lo", "eth0", "docker0"))
        }


def test_partitions_and_mapped_volumes_are_not_counted_again(tmp_path: Path) -> None:
    (tmp_path / "sda" / "device").mkdir(parents=True)
    (tmp_path / "sda1" / "partition").mkdir(parents=True)
    (tmp_path / "dm-0").mkdir()
    read = slow_readings.whole_disks(Counters, tmp_path)
    assert read is not None
    assert read() == {"disk_read_bytes_per_s": 1, "disk_write_bytes_per_s": 2, "disk/sda busy_share": 0}


def test_bridges_and_the_loopback_are_not_counted_again(tmp_path: Path) -> None:
    read = slow_readings.networks(Counters, tmp_path)
    assert read is not None
    assert read() == {"network_receive_bytes_per_s": 110, "network_send_bytes_per_s": 220}
    (tmp_path / "eth0" / "device").mkdir(parents=True)
    read = slow_readings.networks(Counters, tmp_path)
    assert read is not None
    assert read() == {"network_receive_bytes_per_s": 10, "network_send_bytes_per_s": 20}


def test_a_disk_that_worked_half_of_the_time_was_half_busy(book: Any, tmp_path: Path) -> None:
    (tmp_path / "sda" / "device").mkdir(parents=True)
    read = slow_readings.whole_disks(Counters, tmp_path)
    assert read is not None
    readings = SlowReadings(book.writer, psutil, [read])
    look(book, readings, SECOND)
    Counters.second += 1
    assert look(book, readings, 2 * SECOND).values("disk/sda", "busy_share") == [0.5]


def test_counters_and_clocks_that_step_back_are_no_traffic(book: Any) -> None:
    totals = iter(
        [{"x_bytes_per_s": 100}, {"x_bytes_per_s": 40}, {"x_bytes_per_s": 50}, {"x_bytes_per_s": 60}]
    )
    readings = SlowReadings(book.writer, psutil, [lambda: next(totals)])
    content = look(book, readings, 2 * SECOND, 3 * SECOND, 3 * SECOND, 4 * SECOND)
    assert content.values("host", "x_bytes_per_s") == [0.0, 10.0]
