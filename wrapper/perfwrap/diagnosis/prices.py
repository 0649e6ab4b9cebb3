"""What a run costs, for a price that the user gives: per kilowatt hour of its energy, or per hour of the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from perfwrap.errors import PerfwrapError
from perfwrap.measures.run.energy import Energy

PRICE = re.compile(
    r"(?P<amount>\d{1,9}(?:\.\d{1,9})?)\s*(?P<currency>[^\s\d/.,]{0,8})\s*/\s*(?P<per>kwh|h)", re.I
)
KILOWATT_HOUR = 3.6e6
"""Joules."""
HOUR_NS = 3.6e12


class Price(Struct, frozen=True):
    """A price: an amount of a currency, which may be empty, for a kWh (``by_energy``) or an hour."""

    amount: float
    currency: str
    by_energy: bool


class Cost(Struct, frozen=True):
    """What a run and one of its steps cost; a step's is None if it is unknown."""

    amount: float
    step_amount: float | None
    currency: str
    by_energy: bool


def parse_price(text: str, where: str) -> Price | None:
    """Return a price such as ``0.30EUR/kWh`` or ``12.5 USD/h``; None for an empty text."""
    if not text.strip():
        return None
    found = PRICE.fullmatch(text.strip())
    if found is None:
        raise PerfwrapError(
            f"{where} is not a price: {text!r}.",
            "Use an amount for a kWh or an hour: 0.30EUR/kWh or 12.5USD/h.",
        )
    return Price(float(found["amount"]), found["currency"], found["per"].lower() == "kwh")


def find_cost(
    price: Price | None, energy: Energy | None, run: Mapping[str, Any], step_ns: float | None
) -> Cost | None:
    """Return the cost of a run; None without a price, or if its energy or its length is unknown."""
    if price is None:
        return None
    if price.by_energy:
        if energy is None:
            return None
        step = None if energy.step_joules is None else energy.step_joules / KILOWATT_HOUR * price.amount
        return Cost(energy.joules / KILOWATT_HOUR * price.amount, step, price.currency, True)
    start, end = run.get("start"), run.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict):
        return None
    hours = (end["monotonic_ns"] - start["monotonic_ns"]) / HOUR_NS
    step = None if step_ns is None else step_ns / HOUR_NS * price.amount
    return Cost(hours * price.amount, step, price.currency, False)
