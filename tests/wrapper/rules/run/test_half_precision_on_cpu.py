from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.run import half_precision_on_cpu as rule

FLOAT16, BFLOAT16 = "torch.float16", "torch.bfloat16"


def write(
    loop: Any,
    types: str = "torch.float32 1200",
    autocast: str = "off",
    device: str = "cpu",
    features: str | None = "avx2",
    python: float = 0,
) -> None:
    """Write steps of 10 ms of work and some of the program's own code."""
    loop.journal.fact("model/Net/device", device)
    loop.journal.fact("model/Net/dtypes", types)
    loop.journal.fact("model/Net/autocast", autocast)
    if features is not None:
        loop.monitor().fact("cpu_features", features)
    for _ in range(40):
        loop.compute()
        loop.python(python)


@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("by_autocast", [True, False])
def test_16_bits_without_instructions_are_found(
    loop: Any, find: Callable[[Rule], Finding], kind: str, by_autocast: bool
) -> None:
    types = "torch.float32 1200" if by_autocast else f"{kind} 1200, torch.float32 2"
    write(loop, types, f"cpu {kind}" if by_autocast else "off", python=10)
    finding = find(rule)
    least, most = 0.5, 0.95
    assert finding.share == pytest.approx(0.5 * (least + most) / 2, abs=0.02)
    assert finding.saving == pytest.approx((1 - 0.5 * most, 1 - 0.5 * least), abs=0.02)
    assert ("autocast" in finding.title) is by_autocast
    assert "Net" in finding.title


@pytest.mark.parametrize(
    ("kind", "features"),
    [
        (BFLOAT16, "amx_bf16 avx2 avx512f"),
        (BFLOAT16, "avx2 avx512_bf16 avx512f"),
        (FLOAT16, "avx2 avx512_fp16 avx512f"),
        (FLOAT16, "asimdhp"),
    ],
)
def test_a_processor_with_instructions_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], kind: str, features: str
) -> None:
    write(loop, autocast=f"cpu {kind}", features=features)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("features", ["avx2 avx512f", "none seen", None])
def test_a_processor_on_which_nothing_was_measured_is_not_judged(
    loop: Any, ask: Callable[[Rule], Answer], features: str | None
) -> None:
    write(loop, autocast=f"cpu {FLOAT16}", features=features)
    assert isinstance(ask(rule), NotChecked)


@pytest.mark.parametrize(
    ("types", "autocast", "device"),
    [
        ("torch.float32 1200", "off", "cpu"),
        ("torch.float64 1200", f"cpu {BFLOAT16}", "cpu"),
        ("torch.float32 1000, torch.bfloat16 200", "off", "cpu"),
        ("torch.float16 1200", "off", "cuda:0"),
        ("torch.bfloat16 1200", "off", "mps:0"),
        ("torch.float32 1200", f"cuda {FLOAT16}", "cuda:0"),
    ],
)
def test_other_types_and_devices_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], types: str, autocast: str, device: str
) -> None:
    write(loop, types, autocast, device)
    assert isinstance(ask(rule), Clear)


def test_little_work_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, autocast=f"cpu {FLOAT16}", python=200)
    assert isinstance(ask(rule), Clear)


def test_autocast_only_around_a_small_model_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.journal.fact("model/Head/dtypes", "torch.float32 200")
    loop.journal.fact("model/Head/device", "cpu")
    loop.journal.fact("model/Head/autocast", f"cpu {FLOAT16}")
    write(loop)
    assert isinstance(ask(rule), Clear)


def test_the_verdict_is_not_healthy(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, autocast=f"cpu {FLOAT16}")
    found = diagnosis()
    assert found.findings[0].rule == "half_precision_on_cpu"
    assert "float16" in found.verdict.sentence
