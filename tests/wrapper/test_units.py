from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap import units

FINITE = st.floats(min_value=1e-12, max_value=1e15)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (240, "240 ns"),
        (999.9, "1 µs"),
        (1_400, "1.4 µs"),
        (12_345_678, "12 ms"),
        (999_600_000, "1 s"),
        (1_440_000_000, "1.4 s"),
        (125_000_000_000, "2 min 5 s"),
        (120_000_000_000, "2 min"),
        (12_000_000_000_000, "3 h 20 min"),
        (None, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_a_duration_has_two_digits_and_a_fitting_unit(nanoseconds: float | None, text: str) -> None:
    assert units.duration(nanoseconds) == text


def test_a_duration_can_have_more_digits() -> None:
    assert units.duration(12_345_678, digits=3) == "12.3 ms"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.031, "3.1 %"),
        (0.0996, "10 %"),
        (0.654, "65 %"),
        (0.9999, ">99 %"),
        (1, "100 %"),
        (None, "unknown"),
    ],
)
def test_only_the_whole_is_a_hundred_per_cent(value: float | None, text: str) -> None:
    assert units.share(value) == text


@pytest.mark.parametrize(
    ("byte_count", "text"),
    [
        (640, "640 B"),
        (1023.9, "1 KiB"),
        (300 * 2**20, "300 MiB"),
        (1_300_000, "1.2 MiB"),
        (80 * 2**30, "80 GiB"),
        (None, "unknown"),
    ],
)
def test_sizes_are_in_powers_of_1024(byte_count: float | None, text: str) -> None:
    assert units.size(byte_count) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.4, 0.6, "1.7x to 2.5x faster (step time 40 to 60 % of today's)"),
        (0.5, 0.5, "2x faster (step time 50 % of today's)"),
        (0.8, 1.0, "up to 1.2x faster (step time 80 to 100 % of today's)"),
        (1.0, 1.0, "nothing to gain"),
    ],
)
def test_a_saving_is_printed_as_a_range(low: float, high: float, text: str) -> None:
    assert units.saving(low, high) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (50, "50th"), (101, "101st")]
)
def test_ordinals_are_english(value: int, text: str) -> None:
    assert units.ordinal(value) == text


def test_one_thing_is_not_many() -> None:
    assert units.counted(1, "step") == "1 step"
    assert units.counted(1200, "batch", "batches") == "1,200 batches"


@given(FINITE)
def test_a_number_never_shows_more_digits_than_it_rounded_to(value: float) -> None:
    shown = units.number(value)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(units.significant(value), rel=1e-9)


@given(st.floats(min_value=0, max_value=1e14))
def test_a_duration_reads_back_within_its_digits(nanoseconds: float) -> None:
    sizes = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12}
    words = units.duration(nanoseconds).replace(",", "").split()
    total = sum(float(amount) * sizes[unit] for amount, unit in zip(words[::2], words[1::2], strict=True))
    assert total == pytest.approx(nanoseconds, rel=0.051, abs=0.51)


PARTS = st.dictionaries(st.text(max_size=3), st.floats(min_value=0, max_value=1e18), min_size=1, max_size=15)


@given(PARTS, st.integers(1, 10_000))
def test_apportioned_parts_sum_to_the_whole_and_are_off_by_less_than_one(
    parts: dict[str, float], whole: int
) -> None:
    shares = units.apportion(parts, whole)
    total = math.fsum(parts.values())
    assert sum(shares.values()) == (whole if total else 0)
    assert all(abs(shares[name] - whole * (parts[name] / total)) < 1.001 for name in parts if total)


def test_changes_have_a_sign() -> None:
    assert [units.signed_share(value) for value in (0.123, -0.031, 0.0)] == ["+12 %", "-3.1 %", "0 %"]
    assert [units.signed_duration(value) for value in (1.2e6, -240.0, 0.0)] == ["+1.2 ms", "-240 ns", "0 ns"]


def test_noise_beyond_the_figure_itself_is_printed_without_digits() -> None:
    assert [units.noise(value) for value in (0.021, 0.5, 725.0)] == ["±2.1 %", "±50 %", "over ±100 %"]


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.5, None, None, "0.50"),
        (0.504, 0.45, 1.0, "0.50 (0.45 to 1.00)"),
        (0.00342, 0.0012, 0.0104, "0.0034 (0.0012 to 0.01)"),
        (0.26, 0.0, 31371494.6, "0.26 (0 to >99)"),
        (12.3, 9.87, 15.0, "12 (9.87 to 15)"),
        (float("nan"), None, None, "unknown"),
    ],
)
def test_a_ratio_has_its_interval_however_wide(
    value: float, low: float | None, high: float | None, text: str
) -> None:
    assert units.ratio(value, low, high) == text
