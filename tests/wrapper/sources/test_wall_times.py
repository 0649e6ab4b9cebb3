from __future__ import annotations

import pytest
from perfwrap.sources.wall_times import find_time

NOON = 1_767_268_800 * 10**9
"""2026-01-01 12:00:00 UTC."""


@pytest.mark.parametrize(
    ("text", "nanoseconds", "zoned"),
    [
        ("2026/01/01 12:00:00.000", NOON, False),
        ("2026-01-01T12:00:00Z", NOON, True),
        ("2026-01-01T12:00:00.487Z", NOON + 487_000_000, True),
        ("2026-01-01T14:00:00.5+02:00", NOON + 500_000_000, True),
        ("2026-01-01 07:00:00-0500", NOON, True),
        ("20260101 12:00:00", NOON, False),
        ("1767268800.25", NOON + 250_000_000, True),
        ("1767268800", NOON, True),
    ],
)
def test_moments_are_read_as_tools_write_them(text: str, nanoseconds: int, zoned: bool) -> None:
    found = find_time(text)
    assert found is not None
    assert (found.nanoseconds, found.zoned) == (nanoseconds, zoned)


@pytest.mark.parametrize("text", ["", "12:00:00", "2026/13/01 12:00:00", "0 %", "42", "2026-01-01", "N/A"])
def test_what_is_no_moment_is_none(text: str) -> None:
    assert find_time(text) is None
