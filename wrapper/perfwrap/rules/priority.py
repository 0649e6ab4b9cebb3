"""The order in which rules claim time of the training loop.

No time is counted twice: each segment of the account belongs to the first finding that claims it. A rule that knows the
cause comes before one that sees only the symptom, and a rule about one kind of wait before those about slowness in
general. Rules claim in the order in which they are shown, that of the topics and of each topic's RULES, except for
those in BEFORE. The place of rules that claim no time does not matter. A rule that is in no topic claims first.
"""

from __future__ import annotations

from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id

BEFORE = {
    # A slow rank is a cause of slow steps.
    "straggler_rank": "slow_steps",
    # What grows is a cause of long checkpoints, validations, and steps.
    "slowing_steps": "checkpoint_stall",
}
"""Rules that claim at another place than they are shown: each directly before the rule that is named here."""


def _order() -> list[str]:
    """Return the names of all rules, those that claim first in front."""
    order = [rule_id(rule) for rule in RULES]
    for rule, following in BEFORE.items():
        order.remove(rule)
        order.insert(order.index(following), rule)
    return order


_PLACES = {rule: place for place, rule in enumerate(_order())}


def priority(rule: str) -> int:
    """Return a number that is lower the earlier the rule claims time."""
    return _PLACES.get(rule, -1)
