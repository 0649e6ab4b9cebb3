"""The only place that turns numbers into text; never more digits than are known."""

from __future__ import annotations

import math
from collections.abc import Mapping

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN = "unknown"
"""Shown in place of a number that was not measured."""


def significant(value: float, digits: int = 2) -> float:
    """Return ``value`` rounded to this number of significant digits."""
    if value == 0 or not math.isfinite(value):
        return value
    rounded = float(f"{value:.{digits - 1}e}")
    return rounded if math.isfinite(rounded) else value


def number(value: float, digits: int = 2) -> str:
    """Return e.g. ``0.034``, ``1.2``, ``57`` or ``12,000``: significant digits, never an exponent."""
    if not math.isfinite(value):
        return UNKNOWN
    rounded = significant(value, digits)
    if rounded == 0 or abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{places}f}".rstrip("0").rstrip(".")


def count(value: int) -> str:
    """Return an integer with all its digits, e.g. ``12,345``."""
    return f"{value:,}"


def counted(value: int, one: str, many: str = "") -> str:
    """Return e.g. ``1 step`` or ``1,200 steps``; ``many`` is the plural if it is not ``one`` with an s."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def duration(nanoseconds: float | None, digits: int = 2) -> str:
    """Return e.g. ``240 ns``, ``1.4 ms``, ``12 s``, ``2 min 5 s`` or ``3 h 20 min``."""
    if nanoseconds is None or not math.isfinite(nanoseconds):
        return UNKNOWN
    if abs(nanoseconds) >= HOUR:
        hours, minutes = divmod(round(nanoseconds / MINUTE), 60)
        return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"
    if abs(nanoseconds) >= 2 * MINUTE:
        minutes, seconds = divmod(round(nanoseconds / SECOND), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    rounded = significant(nanoseconds, digits)
    for size, unit in ((SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "µs")):
        if abs(rounded) >= size:
            return f"{number(rounded / size, digits)} {unit}"
    return f"{number(rounded, digits)} ns"


def share(value: float | None) -> str:
    """Return a share as e.g. ``65 %`` or ``3.1 %``; only exactly 1 is ``100 %``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    percent = 100 * value
    if percent == 0:
        return "0 %"
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.5 <= percent < 100:
        return ">99 %"
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def signed_share(value: float) -> str:
    """Return a change as e.g. ``+12 %``, ``-3.1 %`` or ``0 %``."""
    return ("+" if value > 0 else "-" if value < 0 else "") + share(abs(value))


def noise(value: float) -> str:
    """Return the relative uncertainty of a figure as e.g. ``±2.1 %``; above 100 % without digits."""
    return f"±{share(value)}" if value < 1 else "over ±100 %"


def signed_duration(nanoseconds: float) -> str:
    """Return a change as e.g. ``+1.2 ms`` or ``-240 ns``."""
    return ("+" if nanoseconds > 0 else "-" if nanoseconds < 0 else "") + duration(abs(nanoseconds))


def size(byte_count: float | None) -> str:
    """Return e.g. ``640 B``, ``1.2 MiB`` or ``80 GiB`` (powers of 1024)."""
    if byte_count is None or not math.isfinite(byte_count):
        return UNKNOWN
    power = 0
    while abs(round(byte_count / 1024**power)) >= 1024 and power < len(BYTE_UNITS) - 1:
        power += 1
    value = byte_count / 1024**power
    return f"{number(value, digits=3 if value >= 100 else 2)} {BYTE_UNITS[power]}"


def energy(joules: float) -> str:
    """Return e.g. ``42 mJ``, ``8.1 J``, ``640 kJ`` or, from a tenth of a kWh on, ``1.2 kWh``."""
    if abs(joules) >= 3.6e5:
        return f"{number(joules / 3.6e6)} kWh"
    for size, unit in ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ")):
        if abs(significant(joules)) >= size:
            return f"{number(joules / size)} {unit}"
    return f"{number(joules / 1e-6)} µJ"


def rate(per_second: float | None, what: str, digits: int = 3) -> str:
    """Return e.g. ``1,230 samples/s``."""
    return UNKNOWN if per_second is None else f"{number(per_second, digits)} {what}/s"


def times(factor: float) -> str:
    """Return a factor as e.g. ``1.06x``, ``2.4x`` or ``12x``; near 1 with two decimals."""
    return f"{number(factor, 3 if factor < 1.2 else 2)}x"


def ratio(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return e.g. ``0.50``, ``0.0034`` or ``0.50 (0.48 to 0.53)``: a ratio, and its interval."""
    if low is None or high is None:
        return _ratio(value)
    return f"{_ratio(value)} ({_ratio(low)} to {_ratio(high)})"


def _ratio(value: float) -> str:
    """Return one ratio in as few characters as possible."""
    if not math.isfinite(value):
        return UNKNOWN
    if value < 0.1:
        return number(value)
    return f"{value:.2f}" if value < 10 else f"{value:.0f}" if value < 99.5 else ">99"


def saving(low: float, high: float) -> str:
    """Return a range of step-time ratios, e.g. ``1.7x to 2.5x faster (step time 40 to 60 % of today's)``."""
    if low >= 1:
        return "nothing to gain"
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    span = first if first == last else f"{first} to {last}"
    return f"{_faster(low, high)} (step time {span} % of today's)"


def step_time(low: float, high: float) -> str:
    """Return a range of step-time ratios in a few words: ``40 to 60 %``, ``down to 40 %``; empty without a gain."""
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    if first == "100":
        return ""
    if last == "100":
        return f"down to {first} %"
    return f"{first} %" if first == last else f"{first} to {last} %"


def _faster(low: float, high: float) -> str:
    """Return e.g. ``1.7x to 2.5x faster`` or ``up to 2.5x faster``."""
    most = times(1 / low) if low > 0 else "many times"
    if high >= 1:
        return f"up to {most} faster"
    least = times(1 / high)
    return f"{most} faster" if least == most else f"{least} to {most} faster"


def ordinal(value: int) -> str:
    """Return e.g. ``1st``, ``22nd``, ``113th``."""
    suffix = "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value:,}{suffix}"


def apportion(parts: Mapping[str, float], whole: int) -> dict[str, int]:
    """Return ``parts`` as integers that sum to exactly ``whole``, each off by less than one (largest
    remainders).

    All are zero if the parts sum to zero; negative parts count as zero.
    """
    weights = {name: max(0.0, value) for name, value in parts.items()}
    total = math.fsum(weights.values())
    if total <= 0:
        return dict.fromkeys(weights, 0)
    exact = {name: whole * (value / total) for name, value in weights.items()}
    result = {name: math.floor(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: result[name] - exact[name])
    for name in by_remainder[: whole - sum(result.values())]:
        result[name] += 1
    return result
