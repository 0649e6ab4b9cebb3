"""How each line that clears or clips gradients calls for it, as the recorder said it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfwrap.measures.lines import Line, parse_line

SITE = re.compile(r"^(?P<topic>[a-z_]+)/(?P<number>\d+)/(?P<option>[a-z_]+)$")


@dataclass(frozen=True)
class CallSite:
    """One line and its options as text; a line that calls with different options has several."""

    where: Line
    options: dict[str, str]


def find_call_sites(facts: Mapping[str, str], topic: str) -> tuple[CallSite, ...]:
    """Return the lines of a topic (``zero_grad``, ``clip``) in the order in which they first ran."""
    found: dict[int, dict[str, str]] = {}
    for key, value in facts.items():
        match = SITE.match(key)
        if match and match["topic"] == topic:
            found.setdefault(int(match["number"]), {})[match["option"]] = value
    sites = []
    for _, options in sorted(found.items()):
        where = parse_line(options.pop("line", None))
        if where is not None:
            sites.append(CallSite(where, options))
    return tuple(sites)
