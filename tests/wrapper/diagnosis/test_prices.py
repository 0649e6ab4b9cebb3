"""A price is an amount for a kWh or an hour, from an option or the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.diagnosis.configuration import choose
from perfwrap.diagnosis.prices import Price, find_cost, parse_price
from perfwrap.errors import PerfwrapError
from perfwrap.measures.run.energy import Energy


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.30EUR/kWh", Price(0.3, "EUR", True)),
        ("12.5 USD / h", Price(12.5, "USD", False)),
        ("3/h", Price(3.0, "", False)),
        ("0.28€/kwh", Price(0.28, "€", True)),
        ("", None),
    ],
)
def test_a_price_is_read(text: str, price: Price | None) -> None:
    assert parse_price(text, "--price") == price


@pytest.mark.parametrize("text", ["cheap", "3", "-1/h", "1,5EUR/h", "2EUR/kW", "1e9/h", "0.3 EUR per kWh"])
def test_what_is_no_price_is_refused_with_examples(text: str) -> None:
    with pytest.raises(PerfwrapError) as raised:
        parse_price(text, "--price")
    assert "0.30EUR/kWh" in raised.value.hint


def test_the_option_goes_before_the_settings(tmp_path: Path) -> None:
    (tmp_path / "perfwrap.toml").write_text('price = "0.30EUR/kWh"\n')
    assert choose(tmp_path).price == Price(0.3, "EUR", True)
    assert choose(tmp_path, price="2USD/h").price == Price(2.0, "USD", False)
    (tmp_path / "perfwrap.toml").write_text("price = 3\n")
    with pytest.raises(PerfwrapError, match=r"price of .*perfwrap\.toml"):
        choose(tmp_path)


def test_an_hour_of_the_machine_has_its_price() -> None:
    run = {"start": {"monotonic_ns": 0}, "end": {"monotonic_ns": 1_800_000_000_000}}
    cost = find_cost(Price(3.6, "USD", False), None, run, 1e9)
    assert cost is not None
    assert cost.amount == pytest.approx(1.8)
    assert cost.step_amount == pytest.approx(0.001)
    assert find_cost(Price(3.6, "USD", False), None, {}, None) is None


def test_energy_that_was_not_measured_has_no_cost() -> None:
    price = Price(0.3, "EUR", True)
    assert find_cost(price, None, {}, 1e9) is None
    cost = find_cost(price, Energy(1, 3.6e6, None), {}, 1e9)
    assert cost is not None
    assert (cost.amount, cost.step_amount) == (pytest.approx(0.3), None)
