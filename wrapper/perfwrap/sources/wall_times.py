"""Reads times of other tools: dates with times, with or without a zone, and seconds since 1970."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from msgspec import Struct

STAMP = re.compile(
    r"^(?P<year>\d{4})[-/]?(?P<month>\d\d)[-/]?(?P<day>\d\d)[T ]+(?P<clock>\d\d:\d\d:\d\d)"
    r"(?:[.,](?P<part>\d{1,9}))?\s*(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?$"
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECONDS = re.compile(r"^\d{9,10}(\.\d+)?$")
"""Seconds since 1970, from 1973 on."""


class WallTime(Struct, frozen=True):
    """Nanoseconds since 1970; ``zoned`` is whether the text has a time zone, else UTC is assumed."""

    nanoseconds: int
    zoned: bool


def find_time(text: str) -> WallTime | None:
    """Return the time in a text; None if it is not one."""
    if SECONDS.match(text):
        seconds, _, part = text.partition(".")
        return WallTime(int(seconds) * 10**9 + int(part[:9].ljust(9, "0") or 0), True)
    found = STAMP.match(text)
    if found is None:
        return None
    try:
        day = datetime.fromisoformat(f"{found['year']}-{found['month']}-{found['day']}T{found['clock']}")
    except ValueError:
        return None
    zone = found["zone"] or ""
    ahead = timedelta()
    if zone[:1] in ("+", "-"):
        digits = zone[1:].replace(":", "")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (1 if zone[0] == "+" else -1)
    since = day.replace(tzinfo=timezone.utc) - ahead - EPOCH
    whole = (since.days * 86400 + since.seconds) * 10**9
    return WallTime(whole + int((found["part"] or "0").ljust(9, "0")), bool(zone))
