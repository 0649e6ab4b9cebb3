from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import padded_batches as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(
    loop: Any,
    words: str,
    *,
    more: str = "128 128 0",
    source: str = "Net",
    device: str = "cpu",
    python: float = 0,
    skips: bool = False,
    mixes: bool = True,
) -> None:
    """Write steps of 10 ms of work and some of the program's own code."""
    loop.journal.fact("model/Net/device", device)
    loop.journal.fact("model/Net/embeds", "True")
    loop.journal.fact("model/Net/skips_padding", str(skips))
    loop.journal.fact("model/Net/mixes_positions", str(mixes))
    loop.journal.fact("padding/" + source, words + " " + more)
    for _ in range(40):
        loop.compute(4, 5, 1)
        loop.python(python)


def test_padding_to_a_fixed_length_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, "16 2048 1024 16384 12288")
    finding = find(rule)
    assert finding.share == pytest.approx(0.9 * 0.5, abs=0.02)
    assert finding.saving == pytest.approx((1 - 1.5 * 0.9 * 0.5, 1 - 0.75 * 0.9 * 0.5), abs=0.02)
    assert "50 % of the batch columns" in finding.sentence
    assert "128 numbers wide; the longest row of a batch has 64, an average row 32." in finding.evidence[0]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("16 2048 0 16384 12288", {}),
        ("16 2048 150 16384 12288", {}),
        ("2 2048 1024 16384 12288", {}),
        ("16 0 0 0 0", {}),
        ("16 2048 many 16384 12288", {}),
        ("16 2048 1024 16384 12288", {"skips": True}),
        ("16 2048 1024 16384 12288", {"more": "64 192 0"}),
        ("16 2048 1024 16384 12288", {"python": 110}),
        ("16 2048 1024 16384 12288", {"source": "CrossEntropyLoss"}),
    ],
)
def test_little_or_none_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], words: str, options: dict[str, Any]
) -> None:
    write(loop, words, **options)
    assert isinstance(ask(rule), Clear)


def test_on_a_gpu_only_its_kernels_count(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "16 2048 1024 16384 12288", device="cuda:0")
    assert isinstance(ask(rule), NotChecked)


@pytest.mark.parametrize("options", [{"mixes": False}, {"more": "128 128 9"}])
def test_work_that_may_not_go_by_the_length_is_not_judged(
    loop: Any, ask: Callable[[Rule], Answer], options: dict[str, Any]
) -> None:
    write(loop, "16 2048 1024 16384 12288", **options)
    assert isinstance(ask(rule), NotChecked)


def test_a_compiled_model_is_not_judged(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.journal.fact("compile/graphs", "1")
    write(loop, "16 2048 1024 16384 12288")
    assert isinstance(ask(rule), NotChecked)


def test_only_the_work_of_that_model_counts(loop: Any, find: Callable[[Rule], Finding]) -> None:
    loop.journal.fact("padding/Text", "16 2048 1843 16384 15000 128 128 0")
    for what in ("embeds", "mixes_positions"):
        loop.journal.fact("model/Text/" + what, "True")
    for _ in range(40):
        loop.span("forward", 1, "Text", 3, 20)
        loop.span("forward", 3, "Image", 3, 21)
        loop.span("backward", 4, line=23)
        loop.span("optimizer", 2, "SGD#1", line=24)
    assert find(rule).share == pytest.approx(0.9 * 0.2, abs=0.02)
