from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import SPANS
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.what_if import best_without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.loop import activation_checkpointing as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

GIB = 1 << 30
MS = 1_000_000
TRAINING = 3


def write(loop: Any, again: float = 2, steps: int = 40, reentrant: bool = False) -> None:
    for _ in range(steps):
        loop.span("forward", 4, "Net", TRAINING, 21)
        with loop.journal.inside("backward", line="train.py:23:main"):
            loop.python(3)
            for _ in range(2):
                with loop.journal.inside("recompute", "checkpoint", line="model.py:11:Net.forward"):
                    loop.span("forward", again / 2, "Block", TRAINING, 23)
                    if reentrant:
                        loop.span("backward", 1, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)


def memory(loop: Any, used: float, free: float) -> None:
    loop.sample("process/100", "rss_bytes", used)
    loop.sample("host", "memory_available_bytes", free)


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_second_forward_pass_is_found_at_the_line_of_the_checkpoint(
    loop: Any, find: Callable[[Rule], Finding], reentrant: bool
) -> None:
    write(loop, reentrant=reentrant)
    memory(loop, GIB, 20 * GIB)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / (12 if reentrant else 10), abs=0.02)
    assert str(finding.location) == "model.py:11"
    assert "checkpoints per step: 2" in finding.evidence[0]
    assert "At most 1 GiB" in finding.evidence[1]
    assert "Try a few steps without it at model.py:11" in finding.advice
    assert finding.saving == (best_without(finding.share), 1.0)
    assert finding.severity == "minor"


@pytest.mark.parametrize("reentrant", [False, True])
def test_it_is_neither_the_backward_nor_the_forward_pass(loop: Any, run: Any, reentrant: bool) -> None:
    write(loop, reentrant=reentrant)
    evidence = Evidence(run.read())
    account = evidence.get(find_account, evidence.get(find_main_trainer))
    step = 12 if reentrant else 10
    parts = {"forward": 4, "backward": 5 if reentrant else 3, "recompute": 2, "optimizer": 1}
    for part, ms in parts.items():
        assert account.shares[part] == pytest.approx(ms / step, abs=0.01)


def test_no_gain_is_claimed_where_little_memory_is_left(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    memory(loop, 10 * GIB, 2 * GIB)
    finding = find(rule)
    assert (finding.saving, finding.informational) == ((1.0, 1.0), True)
    assert "Keep it at" in finding.advice


def test_no_gain_is_claimed_where_the_memory_is_unknown(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    finding = find(rule)
    assert (finding.saving, finding.informational) == ((1.0, 1.0), True)
    assert "was not recorded" in finding.evidence[1]
    assert "only if you know" in finding.advice


def test_on_a_gpu_the_time_of_the_host_is_not_the_loops(loop: Any, find: Callable[[Rule], Finding]) -> None:
    loop.journal.fact("model/Net/device", "cuda:0")
    write(loop)
    finding = find(rule)
    assert finding.informational
    assert "% of the training loop" not in finding.sentence
    assert "how long the GPU computes them was not recorded" in finding.evidence[0]


def test_on_a_gpu_another_thread_computes_it(loop: Any, run: Any) -> None:
    journal = loop.journal
    for _ in range(40):
        loop.span("forward", 4, "Net", TRAINING, 21)
        begin = journal.now
        loop.span("backward", 6, line=23)
        journal.record(
            SPANS["RECOMPUTE"], begin + MS, 2 * MS, 0, "checkpoint\x1fmodel.py\x1f11\x1fNet.forward", 2
        )
        loop.span("optimizer", 1, "SGD#1", line=24)
    evidence = Evidence(run.read())
    account = evidence.get(find_account, evidence.get(find_main_trainer))
    assert account.shares["recompute"] == pytest.approx(2 / 11, abs=0.01)
    assert account.shares["backward"] == pytest.approx(4 / 11, abs=0.01)


def test_the_verdict_is_about_the_models_work(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop)
    memory(loop, GIB, 20 * GIB)
    found = diagnosis()
    assert found.verdict.sentence.startswith("Compute-bound: ")
    assert "python_overhead" not in {finding.rule for finding in found.findings}


def test_a_little_of_it_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, again=0.1)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop)
    journal = loop.journal
    journal.describe(
        "COVERAGE", "probe/recomputation", journal.text("it failed"), start=journal.now, duration=1
    )
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["activation_checkpointing"]
    assert outcome.state == "not checked"
