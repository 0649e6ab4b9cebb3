"""The energy counters of made-up sockets, and of a machine that does not let them be read."""

from __future__ import annotations

import os
from typing import Any

import pytest
from perfwrap.monitors.host import rapl

SECOND = 1_000_000_000
FOLDER = "sys/class/powercap"


def socket(made_up: Any, number: str, name: str, microjoules: int, wraps_at: int = 1_000_000_000) -> None:
    """Write a counter."""
    made_up.write(f"{FOLDER}/intel-rapl:{number}/name", f"{name}\n")
    made_up.write(f"{FOLDER}/intel-rapl:{number}/max_energy_range_uj", f"{wraps_at}\n")
    made_up.write(f"{FOLDER}/intel-rapl:{number}/energy_uj", f"{microjoules}\n")


def test_sockets_and_their_memory_are_summed_and_wraps_are_followed(made_up: Any, book: Any) -> None:
    socket(made_up, "0", "package-0", 5_000_000)
    socket(made_up, "0:0", "core", 1_000_000)  # a part of the package
    socket(made_up, "0:1", "dram", 2_000_000)
    socket(made_up, "1", "package-1", 990_000_000)
    monitor = rapl.watch(book.writer, made_up.root / FOLDER)
    assert monitor is not None
    socket(made_up, "0", "package-0", 9_000_000)
    socket(made_up, "0:1", "dram", 2_500_000)
    socket(made_up, "1", "package-1", 3_000_000)
    monitor.full(SECOND)
    monitor.full(2 * SECOND)
    monitor.close()
    assert book.read().values("host", rapl.PACKAGE) == [4 + 13, 4 + 13]
    assert book.read().values("host", rapl.MEMORY) == [0.5, 0.5]


def test_a_machine_without_counters_is_one_line_of_coverage(made_up: Any, book: Any) -> None:
    assert rapl.watch(book.writer, made_up.root / FOLDER) is None
    assert book.read().notes(rapl.WHAT) == ["this machine has no energy counters (powercap)"]


def test_counters_that_only_root_may_read_are_named_so(made_up: Any, book: Any) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    socket(made_up, "0", "package-0", 5_000_000)
    (made_up.root / FOLDER / "intel-rapl:0" / "energy_uj").chmod(0)
    assert rapl.watch(book.writer, made_up.root / FOLDER) is None
    (note,) = book.read().notes(rapl.WHAT)
    assert note.startswith("only root may read")


def test_a_damaged_counter_does_not_hide_the_others(made_up: Any, book: Any) -> None:
    socket(made_up, "0", "package-0", 5_000_000)
    socket(made_up, "1", "package-1", 5_000_000)
    made_up.write(f"{FOLDER}/intel-rapl:0/energy_uj", "?\n")
    monitor = rapl.watch(book.writer, made_up.root / FOLDER)
    assert monitor is not None
    monitor.full(SECOND)
    assert book.read().values("host", rapl.PACKAGE) == [0]
