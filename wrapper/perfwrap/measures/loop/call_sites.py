"""The options with which each line clears or clips gradients, as recorded."""

from __future__ import annotations

import re

from msgspec import Struct

from perfwrap.measures.account.lines import Line, parse_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.trainers import Trainer

SITE = re.compile(r"^(?P<topic>[a-z_]+)/(?P<number>\d+)/(?P<option>[a-z_]+)$")


class CallSite(Struct, frozen=True):
    """One line and its options as text; a line that calls with different options has several entries."""

    where: Line
    options: dict[str, str]


def find_call_sites(evidence: Evidence, trainer: Trainer, topic: str) -> tuple[CallSite, ...]:
    """Return the lines of a topic (``zero_grad``, ``clip``) in the order in which they first ran."""
    found: dict[int, dict[str, str]] = {}
    for key, value in evidence.get(find_facts, trainer.process).items():
        match = SITE.match(key)
        if match and match["topic"] == topic:
            found.setdefault(int(match["number"]), {})[match["option"]] = value
    sites = []
    for _, options in sorted(found.items()):
        where = parse_line(options.pop("line", None))
        if where is not None:
            sites.append(CallSite(where, options))
    return tuple(sites)
