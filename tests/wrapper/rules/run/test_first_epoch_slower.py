from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from perfwrap.measures.host.cores_taken import OtherPrograms
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule, Scope
from perfwrap.rules.run import first_epoch_slower as rule


def epochs(loop: Any, waits: Sequence[float], forwards: Sequence[float], steps: int = 30) -> None:
    """Write epochs whose steps wait and compute so long."""
    loop.loader(1)
    for wait, forward in zip(waits, forwards, strict=True):
        loop.span("loader_start", 1, "loader/1", 0, 20)
        for _ in range(steps):
            loop.batch(wait)
            loop.compute(forward=forward)
        loop.span("data_end", 0.1, "loader/1", 0, 20)


def test_a_first_epoch_that_waits_for_data_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    epochs(loop, [20, 2, 2], [4, 4, 4])
    finding = find(rule)
    assert "takes 30 ms, 2.5x as long as in later epochs" in finding.title
    assert "most of the difference" in finding.evidence[1]
    assert finding.scope is Scope.RUN
    assert finding.severity == "minor"
    assert 0.3 < finding.share < 0.5


def test_a_first_epoch_that_computes_longer_is_distinguished(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    epochs(loop, [1, 1, 1], [20, 4, 4])
    finding = find(rule)
    assert "not the main difference" in finding.evidence[1]
    assert finding.options[0].edit == "Exclude the first epoch from measurements."


def test_compilation_caches_are_advised_only_if_something_was_compiled(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.span("compile", 50, "net", 0, 19)
    epochs(loop, [1, 1, 1], [20, 4, 4])
    assert "compilation caches" in find(rule).options[0].edit


@pytest.mark.parametrize(("waits", "forwards"), [([1, 1, 1], [20, 4, 4]), ([20, 2, 2], [4, 4, 4])])
def test_beside_other_programs_only_waits_for_data_are_reported(
    loop: Any,
    ask: Callable[[Rule], Answer],
    monkeypatch: pytest.MonkeyPatch,
    waits: list[int],
    forwards: list[int],
) -> None:
    others = OtherPrograms(1.0, 0.5, 2, True, ())
    monkeypatch.setattr(rule, "find_other_programs", lambda evidence, trainer: others)
    epochs(loop, waits, forwards)
    assert isinstance(ask(rule), NotChecked) == (forwards[0] == 20)


@pytest.mark.parametrize("waits", [[3, 2, 2], [2, 2, 2], [20, 2, 20], [2, 20, 2]])
def test_even_epochs_and_a_spread_of_epochs_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], waits: list[float]
) -> None:
    epochs(loop, waits, [4, 4, 4])
    assert isinstance(ask(rule), Clear)


def test_a_slow_first_step_alone_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.compute(forward=2_000)
    epochs(loop, [2, 2, 2], [4, 4, 4])
    assert isinstance(ask(rule), Clear)


def test_one_epoch_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    epochs(loop, [2], [4])
    assert isinstance(ask(rule), Clear)
