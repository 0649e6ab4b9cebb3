from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.run import phase_balance as rule


@pytest.mark.parametrize(
    ("forward", "backward", "words"),
    [(15, 3, "The forward pass takes 5x as long"), (2, 14, "The backward pass takes 7x as long")],
)
def test_passes_out_of_proportion_are_a_note(
    loop: Any, find: Callable[[Rule], Finding], forward: float, backward: float, words: str
) -> None:
    for _ in range(40):
        loop.compute(forward=forward, backward=backward)
    finding = find(rule)
    assert finding.title.startswith(words)
    assert finding.informational
    assert finding.share == 0


@pytest.mark.parametrize(("forward", "backward"), [(5, 10), (5, 5), (4, 11), (7, 4), (3, 10)])
def test_the_usual_proportions_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], forward: float, backward: float
) -> None:
    for _ in range(40):
        loop.compute(forward=forward, backward=backward)
    assert isinstance(ask(rule), Clear)


def test_passes_that_hardly_matter_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.batch(100)
        loop.compute(forward=8, backward=1)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("device", ["cuda:0", "xpu:0", "mps:0", "openreg:0"])
def test_on_a_gpu_the_hosts_times_do_not_count(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer], device: str
) -> None:
    loop = make_loop(**{"model/Net/device": device})
    for _ in range(40):
        loop.compute(forward=10, backward=2)
    assert isinstance(ask(rule), NotChecked)


def test_on_a_gpu_its_own_times_count(make_loop: Callable[..., Any], find: Callable[[Rule], Finding]) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    loop.journal.name_thread(9, "cuda/0 stream 0", 0)
    for _ in range(40):
        start = loop.journal.now
        loop.journal.gpu("forward", start, 2_000_000, name="Net")
        loop.journal.gpu("backward", start + 2_000_000, 7_000_000)
        loop.compute(forward=10, backward=2)
    finding = find(rule)
    assert "3.5x" in finding.title
    assert "on the GPU" in finding.evidence[0]
