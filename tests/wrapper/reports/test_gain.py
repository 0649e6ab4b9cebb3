from __future__ import annotations

import pytest
from perfwrap.reports.gain import alternative
from perfwrap.rules.model import Option

WORKERS = Option(
    "Pass num_workers=2, persistent_workers=True to the DataLoader at train_digits.py:75.",
    (0.78, 0.89),
    "15 ms per batch, 5.5 ms for the rest of the step",
    "workers=2",
)
CACHE = Option(
    "Cache the items of Digits.__getitem__.", (0.57, 0.574), "unchanged in 12 of 12 checks, 1.2 GiB"
)


def test_an_option_is_one_line_with_its_basis_where_there_is_room() -> None:
    line = alternative(CACHE)
    assert (
        line
        == "Cache the items of Digits.__getitem__ (unchanged in 12 of 12 checks, 1.2 GiB), step time 57 %"
    )
    assert alternative(CACHE, 71) == "Cache the items of Digits.__getitem__, step time 57 %"


def test_what_to_change_is_never_cut() -> None:
    line = "Pass num_workers=2, persistent_workers=True to the DataLoader at train_digits.py:75"
    assert alternative(WORKERS, 71) == f"{line}, step time 78 to 89 %"


@pytest.mark.parametrize(
    ("saving", "figure"),
    [((0.5, 1.0), ", step time down to 50 %"), ((1.0, 1.0), ""), ((0.997, 1.0), "")],
)
def test_an_option_that_may_gain_nothing_says_so(saving: tuple[float, float], figure: str) -> None:
    assert alternative(Option("Try it.", saving)) == f"Try it{figure}"


def test_without_a_gain_no_basis_is_shown() -> None:
    assert alternative(Option("Try it.", (1.0, 1.0), "12 ms per step")) == "Try it"
