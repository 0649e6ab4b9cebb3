"""Pressure of this machine, and of one that reports none."""

from __future__ import annotations

from typing import Any

from perfwrap.monitors.host import pressure

SECOND = 1_000_000_000


def test_a_kernel_that_reports_none_is_one_line_of_coverage(made_up: Any, book: Any) -> None:
    found = pressure.of_host(book.writer, made_up.root)
    assert found.read(SECOND) == []
    assert len(book.read().notes("pressure")) == 1


def test_a_share_is_that_of_the_time_between_two_looks(made_up: Any, book: Any) -> None:
    made_up.write("proc/pressure/cpu", "some avg10=0 avg60=0 avg300=0 total=1000000\nfull avg10=0 total=0\n")
    found = pressure.of_host(book.writer, made_up.root)
    assert found.read(SECOND) == []
    made_up.write("proc/pressure/cpu", "some avg10=0 avg60=0 avg300=0 total=1200000\nfull avg10=0 total=0\n")
    assert found.read(SECOND) == [], "no time has passed"
    made_up.write("proc/pressure/cpu", "some avg10=0 avg60=0 avg300=0 total=1700000\nfull avg10=0 total=0\n")
    ((series, share),) = found.read(2 * SECOND)
    assert share == 0.5
    book.writer.samples(2 * SECOND, [(series, share)])
    assert book.read().values("host", "cpu_pressure_share") == [0.5]
    found.close()
