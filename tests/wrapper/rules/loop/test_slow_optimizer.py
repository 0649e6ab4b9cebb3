from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.rules import stack_samples
from perfwrap.rules.loop import slow_optimizer as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

MS = 1_000_000
TORCHS = "torch.optim.sgd.SGD"


def write(
    loop: Any,
    ms: float,
    tensors: int = 200,
    torch: str = "2.13.0+cpu",
    device: str = "cpu",
    elements: int = 200_000,
    **options: object,
) -> None:
    facts = {"class": "torch.optim.sgd.SGD", "parameters": tensors, "foreach": None, "fused": None, **options}
    loop.journal.fact("torch", torch)
    loop.journal.fact("model/Net/device", device)
    if elements:
        loop.journal.fact("model/Net/parameters", elements)
    for key, value in facts.items():
        loop.journal.fact(f"optimizer/SGD#1/{key}", value)
    for _ in range(40):
        loop.compute(optimizer=ms)


def test_a_loop_over_many_small_tensors_is_found_at_its_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, ms=9)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:24"
    assert "fused=True" in finding.advice
    assert finding.saving == pytest.approx((1 - 0.75 * finding.share, 1 - 0.3 * finding.share))


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"train.py": ["o = torch.optim.SGD(p)", "o.step()"]}, "at train.py:1"),
        ({"train.py": ["o.step()"], "agent.py": ["", "o = optim.SGD(p, lr=1)"]}, "at agent.py:2"),
        ({"train.py": ["a, b = SGD(p), 1", "b = SGD(q)"]}, "where it is created"),
        ({"train.py": ["o = make(p)"]}, "where it is created"),
    ],
    ids=["in the file of its steps", "in another file", "several", "unknown"],
)
def test_the_option_is_passed_where_the_optimizer_is_created(
    loop: Any, find: Callable[[Rule], Finding], tmp_path: Path, files: dict[str, list[str]], where: str
) -> None:
    loop.run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(tmp_path)})
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines))
    loop.journal.span("sync", 10_000, "Tensor.item", 0, "agent.py:5:act")
    write(loop, ms=9)
    assert f"Pass fused=True to SGD {where}." in find(rule).advice


@pytest.mark.parametrize(
    "options",
    [
        {"fused": True},
        {"tensors": 8},
        {"class": "torch.optim.adam.Adam", "tensors": 3, "elements": 3_000},
        {"class": "__main__.Adam", "tensors": 8, "elements": 8_000},
        {"class": "torch.optim.lbfgs.LBFGS"},
        {"torch": "2.3.1"},
        {"torch": "unknown"},
    ],
)
def test_what_fused_would_not_speed_up_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], options: dict[str, Any]
) -> None:
    write(loop, ms=9, **options)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("adam.Adam", 0.5, 0.82), ("adamw.AdamW", 0.5, 0.82), ("adagrad.Adagrad", 0.4, 0.75)],
)
def test_in_a_small_model_torchs_loop_over_few_tensors_is_found(
    loop: Any, find: Callable[[Rule], Finding], kind: str, least: float, most: float
) -> None:
    write(loop, ms=1, tensors=4, elements=4_000, **{"class": f"torch.optim.{kind}"})
    finding = find(rule)
    assert "Pass fused=True" in finding.advice
    assert finding.saving == pytest.approx((1 - most * finding.share, 1 - least * finding.share))


def test_where_few_tensors_gain_less_than_3_percent_they_are_clear(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write(loop, ms=0.35, tensors=4, elements=4_000, **{"class": "torch.optim.adam.Adam"})
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize(
    ("kind", "advice"), [("AdamW", "Use torch.optim.AdamW"), ("Lookahead", "foreach functions")]
)
def test_a_loop_that_is_not_torchs_is_recognised_by_the_time_per_tensor(
    loop: Any, find: Callable[[Rule], Finding], kind: str, advice: str
) -> None:
    write(loop, ms=9, **{"class": f"__main__.{kind}"})
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert advice in finding.advice
    assert "it is not from torch" in finding.evidence[0]
    assert (finding.saving[1] < 1) == (kind == "AdamW")


def test_another_optimizer_that_is_quick_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=1.5, **{"class": "bitsandbytes.optim.AdamW8bit"})
    assert isinstance(ask(rule), Clear)


LARGE = {"class": "torch.optim.adam.Adam", "tensors": 8, "elements": 16_000_000}


def test_large_tensors_that_adam_goes_over_several_times_are_found(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, ms=9, **LARGE)
    loop.journal.fact("optimizer/SGD#1/elements", 16_000_000)
    finding = find(rule)
    assert "goes over all parameters several times" in finding.title
    assert "16,000,000 elements" in finding.evidence[0]
    assert finding.saving == pytest.approx((1 - 0.82 * finding.share, 1 - 0.55 * finding.share))
    assert finding.verdict == "compute-bound"


@pytest.mark.parametrize(
    "facts",
    [
        {"class": "torch.optim.sgd.SGD"},
        {"fused": True},
        {"torch": "2.3.1"},
        # Embeddings of which few rows have a gradient: dense_embedding has the better advice.
        {"embedding_rows": 100_000, "embedding_elements": 15_000_000, "embedding_touched": "0.0010"},
    ],
)
def test_other_large_tensors_cost_their_arithmetic(
    loop: Any, ask: Callable[[Rule], Answer], facts: dict[str, Any]
) -> None:
    write(loop, ms=9, **{**LARGE, **facts})
    loop.journal.fact("optimizer/SGD#1/elements", 16_000_000)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize(
    ("kind", "elements", "saved", "advice"),
    [
        ("torch.optim.rmsprop.RMSprop", 16_000_000, (0.0, 0.85), "torch.compile"),
        ("__main__.Lion", 900_000, (0.0, 0.85), "torch.compile"),
        # 9 ms for 900,000 elements, 10 ns each.
        ("__main__.AdamW", 900_000, (0.4, 0.8), "Use torch.optim.AdamW with fused=True"),
    ],
)
def test_many_passes_without_a_fused_form_are_found(
    loop: Any,
    find: Callable[[Rule], Finding],
    kind: str,
    elements: int,
    saved: tuple[float, float],
    advice: str,
) -> None:
    write(loop, ms=9, **{"class": kind, "tensors": 8, "elements": elements})
    loop.journal.fact("optimizer/SGD#1/elements", elements)
    finding = find(rule)
    assert "goes over all parameters several times" in finding.title
    assert finding.saving == pytest.approx(
        (1 - saved[1] * finding.share, 1 - saved[0] * finding.share), abs=0.01
    )
    assert advice in finding.advice


def test_no_fused_form_is_advised_where_torch_is_too_old_for_it(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, ms=9, torch="2.3.1", **{"class": "__main__.AdamW", "tensors": 8, "elements": 900_000})
    loop.journal.fact("optimizer/SGD#1/elements", 900_000)
    assert not any("fused" in option.edit for option in find(rule).options)


def test_on_a_gpu_the_reason_is_what_the_program_switched_off(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, ms=9, device="cuda:0", foreach=False, **{"class": "torch.optim.rmsprop.RMSprop"})
    assert "foreach=False" in find(rule).evidence[0]


def test_another_optimizer_that_takes_few_passes_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=9, **{"class": "__main__.AdamW", "tensors": 8, "elements": 4_000_000})
    loop.journal.fact("optimizer/SGD#1/elements", 4_000_000)
    assert isinstance(ask(rule), Clear)


def test_where_the_size_is_not_known_nothing_is_guessed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=9, elements=0)
    assert isinstance(ask(rule), Clear)


def test_on_a_gpu_torch_does_not_loop_by_itself(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=9, device="cuda:0")
    assert isinstance(ask(rule), Clear)


def test_on_a_gpu_the_loop_that_was_requested_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, ms=9, device="cuda:0", foreach=False)
    finding = find(rule)
    assert finding.saving[1] == 1.0
    assert "foreach=False" in finding.evidence[0]


def test_a_short_step_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=0.1)
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for _ in range(10):
        loop.compute(optimizer=9)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["slow_optimizer"]
    assert outcome.state == "not checked"


@pytest.mark.parametrize(("kind", "place"), [("__main__.AdamW", "own.py:9"), (TORCHS, "train.py:24")])
def test_the_line_of_an_own_optimizer_is_where_its_steps_take_their_time(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch, kind: str, place: str
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    monkeypatch.setattr(stack_samples, "OUTSIDE", "recorder")
    for _ in range(40):
        label = FIELD_SEPARATOR.join(("optimizer", "own.py", "9", "AdamW.step"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now + 12 * MS, MS, 4, label, 1)
        loop.compute(optimizer=9)
    write(loop, ms=9, **{"class": kind})
    assert str(find(rule).location) == place


def write_two(loop: Any, second: str = "torch.optim.adam.Adam") -> None:
    """Write a loop with two optimizers, of a class each."""
    write(loop, ms=0.1, tensors=8, elements=16_000, **{"class": "torch.optim.adam.Adam"})
    for key, value in {"class": second, "parameters": 6, "foreach": None, "fused": None}.items():
        loop.journal.fact(f"optimizer/Other#1/{key}", value)
    for _ in range(40):
        loop.compute(optimizer=3)
        loop.span("backward", 2, line=30)
        loop.span("optimizer", 3, "Other#1", line=31)


def test_optimizers_of_one_class_are_one_finding(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_two(loop)
    finding = find(rule)
    assert "Adam.step() at train.py:24 and train.py:31, which updates tensors one by one" in finding.title
    assert "for each of 14 tensors" in finding.evidence[0]
    assert finding.advice.startswith("Pass fused=True to each Adam where it is created.")
    assert finding.claims is not None


def test_optimizers_of_different_classes_are_separate_findings(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write_two(loop, "torch.optim.adagrad.Adagrad")
    found = ask(rule)
    assert isinstance(found, list)
    assert [finding.title.partition(" is ")[2].partition(".")[0] for finding in found] == ["Adam", "Adagrad"]
