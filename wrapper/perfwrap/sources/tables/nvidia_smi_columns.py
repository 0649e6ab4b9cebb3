"""Identifies the columns of an nvidia-smi log by their names, or without names by their units."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from perfwrap.sources.wall_times import find_time

MEBIBYTE = 1 << 20
UNITS = {
    "%": ("share", 0.01),
    "percent": ("share", 0.01),
    "pct": ("share", 0.01),
    "mib": ("bytes", MEBIBYTE),
    "mb": ("bytes", MEBIBYTE),
    "gib": ("bytes", 1024 * MEBIBYTE),
    "gb": ("bytes", 1024 * MEBIBYTE),
    "w": ("watts", 1),
    "watts": ("watts", 1),
    "mw": ("watts", 0.001),
    "c": ("celsius", 1),
    "celsius": ("celsius", 1),
    "mhz": ("hertz", 1_000_000),
}
"""The quantity of each unit, and its factor to base units; nvidia-smi's MB of memory is 2^20 bytes."""

USUAL = {"share": 0.01, "bytes": MEBIBYTE, "watts": 1, "celsius": 1, "hertz": 1_000_000}
"""nvidia-smi's units of numbers without a unit, by the end of the metric's name."""

DMON = {
    "gpu": "index",
    "idx": "index",
    "date": "date",
    "time": "time",
    "pwr": "power_watts",
    "gtemp": "temperature_celsius",
    "temp": "temperature_celsius",
    "mtemp": "memory_temperature_celsius",
    "sm": "utilization_share",
    "mem": "memory_activity_share",
    "fb": "memory_used_bytes",
    "mclk": "memory_clock_hertz",
    "pclk": "sm_clock_hertz",
    "pviol": "throttle/power_cap",
    "tviol": "throttle/heat",
}
"""The columns of dmon that perfwrap has a series for."""

VIOLATIONS = {"throttle/power_cap": 0.01, "throttle/heat": 1.0}
"""Factors of dmon's columns about lowered clocks: a percentage of the time, and yes or no."""

NAMES: tuple[tuple[str, str], ...] = (
    (r"^(timestamp|datetime|date_?time|time|wall_?time|ts)$", "time"),
    (r"^(gpu_?)?(index|idx|id)$|^gpu$|^device(_?id|_?index)?$", "index"),
    (r"uuid", "uuid"),
    (r"bus_?id", "bus"),
    (r"^driver", "driver_version"),
    (r"^(gpu_?|product_?)?name$", "name"),
    (r"^(enforced_)?power_limit$", "power_limit_watts"),
    (r"^power_default_limit$", "power_limit_default_watts"),
    (r"^clocks_max_(sm|graphics|gr)$", "sm_clock_max_hertz"),
    (r"limit|max|min|default|applications|reasons|slowdown|throttl|enc|dec|jpe?g|ofa", ""),
    (r"^utilization_memory$|^memory_activity", "memory_activity_share"),
    (r"util.*mem|mem.*util", ""),
    (r"util", "utilization_share"),
    (r"mem.*used|used.*mem|mem(ory)?_usage", "memory_used_bytes"),
    (r"mem.*free|free.*mem", "memory_free_bytes"),
    (r"mem.*total|total.*mem", "memory_total_bytes"),
    (r"temp.*mem|mem.*temp", "memory_temperature_celsius"),
    (r"temp", "temperature_celsius"),
    (r"power", "power_watts"),
    (r"clock.*mem|mem.*clock", "memory_clock_hertz"),
    (r"clock.*sm$|sm_?clock|^clocks_(current_)?(graphics|gr)$", "sm_clock_hertz"),
)
"""Metrics by the name of a column, the first that matches; an empty metric has no series in perfwrap.

Other names for memory utilization may mean activity or used memory: only nvidia-smi's own name is accepted.
"""

OFFICIAL = re.compile(
    r"^(utilization\.(gpu|memory)|memory\.(used|free)|power\.draw|temperature\.gpu)( \[.*\])?$"
)
"""Names that nvidia-smi itself writes."""
REASON = re.compile(r"^clocks_(?:throttle|event)_reasons_(\w+)$")
REASONS = {
    "sw_power_cap": "power_cap",
    "hw_slowdown": "hardware_slowdown",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "hardware_heat",
    "hw_power_brake_slowdown": "power_brake",
    "gpu_idle": "idle",
    "applications_clocks_setting": "application_clocks",
    "sync_boost": "sync_boost",
}
"""nvidia-smi's names of reasons for lowered clocks, and those of perfwrap's monitor."""
SLOWED = ("power_cap", "hardware_slowdown", "heat", "hardware_heat", "power_brake")
"""Reasons that are throttling: the others are chosen, or the GPU is idle."""
BITS = {0x4: "power_cap", 0x8: "hardware_slowdown", 0x20: "heat", 0x40: "hardware_heat", 0x80: "power_brake"}
"""The bits of ``clocks_event_reasons.active`` for these (NVML's nvmlClocksEventReasons)."""
ALL_REASONS = "throttle/active"
"""The metric of that column, whose cells are hexadecimal numbers."""
STATES = {"active": 1.0, "not active": 0.0}
WORDS = ("index", "uuid", "bus", "driver_version", "name", "date", "time", "")
"""Metrics that are not numbers."""
SUFFIX = re.compile(r"_(percent|pct|mib|mb|gib|gb|w|watts|mw|c|celsius|mhz)$")
CELL = re.compile(r"^(?P<value>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<unit>%|[A-Za-z][A-Za-z/]*)?$")
COLDEST, HOTTEST = 10, 110
"""Numbers without a unit that vary within this range are temperatures in degrees Celsius."""


class Column(Struct, frozen=True):
    """The content of a column; ``factor`` converts numbers without a unit to base units, 0 for words."""

    metric: str
    factor: float

    def with_unit(self, unit: str) -> Column:
        """Return the column with the unit of a second header line."""
        return _column(self.metric, unit) if self.factor and unit.lower() in UNITS else self


def columns_of(header: Sequence[str]) -> list[Column]:
    """Return the columns of a header."""
    if header[0].startswith("#"):
        names = [cell for cell in [header[0].lstrip("#").strip(), *header[1:]] if cell]
        return [_column(DMON.get(name.lower(), ""), "") for name in names]
    columns = [_named(cell) for cell in header]
    # A column named "gpu" is the GPU's number if another column has the utilization.
    has_utilization = any(column.metric == "utilization_share" for column in columns)
    return [
        _column("", "") if cell.strip().lower() == "gpu" and not has_utilization else column
        for cell, column in zip(header, columns, strict=True)
    ]


def is_header(row: Sequence[str]) -> bool:
    """Return whether a line is a header: names of a time or a GPU, and of series; or dmon's first line.

    One series is enough if it has nvidia-smi's own name. Metrics of ncu have two underscores in their names.
    """
    if not row or any("__" in cell for cell in row):
        return False
    if row[0].startswith("#"):
        names = {cell.lstrip("#").strip().lower() for cell in row}
        return "gpu" in names and len(names & DMON.keys()) > 1
    metrics = {column.metric for column in columns_of(row)}
    enough = any(OFFICIAL.match(cell) for cell in row) or len(metrics - set(WORDS)) > 1
    return enough and bool(metrics & {"time", "index", "name", "uuid"})


def looks_like_values(row: Sequence[str]) -> bool:
    """Return whether a line without a header is from nvidia-smi: a time, and numbers with its units."""
    units = {found["unit"] for cell in row if (found := CELL.match(cell))}
    return find_time(row[0]) is not None and len({"%", "MiB", "W"} & units) > 1


def guessed_columns(rows: Sequence[Sequence[str]]) -> list[Column]:
    """Return the columns without names, identified by their units; ambiguous columns are skipped.

    Percentages are the utilization of the GPU and then of its memory, the usual order. Of two sizes the first is used
    memory; the second is free memory if both have a constant sum, or total memory if it is constant.
    """
    width = max(map(len, rows), default=0)
    cells = [[CELL.match(row[place]) for row in rows if len(row) == width] for place in range(width)]
    units = [{found["unit"] for found in column if found} for column in cells]
    metrics = [""] * width
    metrics[0] = "time" if rows and find_time(rows[0][0]) else ""
    shares = [place for place in range(width) if units[place] == {"%"}]
    for place, metric in zip(shares, ("utilization_share", "memory_activity_share"), strict=False):
        metrics[place] = metric
    powers = [place for place in range(width) if units[place] == {"W"}]
    if powers:
        metrics[powers[0]] = "power_watts"
    sizes = [place for place in range(width) if units[place] == {"MiB"}]
    for place, metric in zip(sizes, _sizes([_numbers(cells[place]) for place in sizes]), strict=False):
        metrics[place] = metric
    bare = [place for place in range(1, width) if units[place] == {None} and _is_warm(_numbers(cells[place]))]
    if len(bare) == 1:
        metrics[bare[0]] = "temperature_celsius"
    return [_column(metric, "") for metric in metrics]


def number_of(text: str, column: Column) -> float | None:
    """Return a cell's value in base units; None if it has none (``[N/A]``, ``-``, ``ERR!``)."""
    found = CELL.match(text)
    if found is None:
        return None
    unit = found["unit"]
    if not unit:
        return float(found["value"]) * column.factor
    kind, factor = UNITS.get(unit.lower(), ("", 0.0))
    return float(found["value"]) * factor if column.metric.endswith(f"_{kind}") else None


def reasons_in(metric: str, text: str) -> dict[str, float]:
    """Return the series of one cell about lowered clocks; empty if it cannot be read."""
    if metric != ALL_REASONS:
        state = STATES.get(text.strip().lower())
        return {} if state is None else {metric: state}
    try:
        bits = int(text, 16)
    except ValueError:
        return {}
    return {f"throttle/{name}": float(bool(bits & bit)) for bit, name in BITS.items()}


def _named(cell: str) -> Column:
    """Return the column with that name."""
    name, _, unit = cell.partition("[")
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    reason = REASON.match(plain)
    if reason is not None:
        known = "active" if reason[1] == "active" else REASONS.get(reason[1])
        return Column(f"throttle/{known}" if known else "", 0)
    suffix = SUFFIX.search(plain)
    unit = unit.rstrip("] ") or (suffix[1] if suffix else "")
    bare = plain[: suffix.start()] if suffix else plain
    metric = next((metric for pattern, metric in NAMES if re.search(pattern, bare)), "")
    return _column(metric, unit)


def _column(metric: str, unit: str) -> Column:
    """Return a column with the factor of its unit, or else of nvidia-smi's unit for it.

    With a unit of another quantity (a share of memory), perfwrap has no series for the column.
    """
    if metric in WORDS:
        return Column(metric, 0)
    if metric.startswith("throttle/"):
        return Column(metric, VIOLATIONS[metric])
    kind, factor = UNITS.get(unit.lower(), (metric.rpartition("_")[2], USUAL[metric.rpartition("_")[2]]))
    return Column(metric, factor) if kind == metric.rpartition("_")[2] else Column("", 0)


def _sizes(columns: Sequence[Sequence[float]]) -> list[str]:
    """Return which sizes of memory are in columns without names."""
    used = ["memory_used_bytes"]
    if len(columns) < 2 or not columns[0]:
        return used if columns else []
    sums = {one + other for one, other in zip(columns[0], columns[1], strict=False)}
    if len(set(columns[1])) == 1:
        return [*used, "memory_total_bytes"]
    # The driver's own memory varies by one or two MiB.
    return [*used, "memory_free_bytes"] if max(sums) - min(sums) <= 0.02 * max(sums) else [""]


def _numbers(cells: Sequence[re.Match[str] | None]) -> list[float]:
    """Return the numbers of a column."""
    return [float(found["value"]) for found in cells if found]


def _is_warm(values: Sequence[float]) -> bool:
    """Return whether numbers can only be temperatures."""
    return len(set(values)) > 1 and min(values) >= COLDEST and max(values) <= HOTTEST
