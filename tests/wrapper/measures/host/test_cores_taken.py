"""Whether other programs took cores from a training, and which."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import OtherPrograms, find_cores_of_others, find_other_programs
from perfwrap.measures.main_trainer import find_main_trainer


def machine(
    run: Any,
    busy: float | None,
    own: float | None,
    switches: float | None = 150.0,
    cores: str = "",
    of_each: dict[int, float] | None = None,
    programs: dict[str, list[float]] | None = None,
) -> None:
    """Write a training of 4 µs on a machine of four cores, with readings of other programs at 2, 4 and 6 µs."""
    journal = run.journal(threads=1, **({"cores": cores} if cores else {}))
    for _ in range(40):
        journal.step()
    monitor = run.journal(pid=50, role="monitor", cores_usable=4, cores_online=4)
    for time in (2_000, 3_000, 4_000):
        if busy is not None:
            monitor.sample("host", "cpu_cores_busy", busy, time)
        if own is not None:
            monitor.sample("process/100", "cpu_cores", own, time)
        if switches is not None:
            monitor.sample("process/100", "involuntary_switches_per_s", switches, time)
        for core, share in (of_each or {}).items():
            monitor.sample(f"cpu/{core}", "busy_share", share, time)
    for place, time in enumerate((2_000, 4_000, 6_000, 8_000)):
        if programs is not None:
            monitor.sample("host", "other_cores", sum(values[place] for values in programs.values()), time)
        for name, values in (programs or {}).items():
            if values[place]:
                monitor.sample("host", f"program/{name}/cpu_cores", values[place], time)


def found(run: Any) -> OtherPrograms | None:
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    return evidence.get(find_other_programs, trainer)


def test_programs_that_took_cores_are_found_with_their_shares(run: Any) -> None:
    programs = {
        "ffmpeg": [0.5, 1.0, 1.5, 4.0],
        "make": [0.0, 0.0, 0.9, 0.0],
        "top": [0.05, 0.05, 0.05, 4.0],
    }
    machine(run, 3.9, 2.4, programs=programs)
    others = found(run)
    assert others is not None
    assert (others.cores, others.of_cores, others.all_cores) == (pytest.approx(1.5), 4, True)
    assert others.share == pytest.approx(0.375)
    # Until the first reading after the loop, as means over all three readings.
    assert others.programs == (("ffmpeg", pytest.approx(0.25)), ("make", pytest.approx(0.075)))


@pytest.mark.parametrize(
    ("busy", "own", "switches"),
    [(None, None, None), (None, 2.4, 150.0), (3.9, 3.8, 150.0), (2.5, 1.0, 150.0), (3.9, 2.4, 3.0)],
    ids=["not monitored", "load unknown", "own work", "free cores", "own cores"],
)
def test_without_harm_nothing_is_found(
    run: Any, busy: float | None, own: float | None, switches: float | None
) -> None:
    machine(run, busy, own, switches)
    assert found(run) is None


@pytest.mark.parametrize("of_each", [{0: 1.0, 1: 0.95}, {0: 1.0, 1: 0.5}, {0: 1.0}])
def test_of_a_training_with_some_of_the_cores_only_these_count(run: Any, of_each: dict[int, float]) -> None:
    machine(run, 2.2, 1.2, cores="0-1", of_each={**of_each, 2: 0.2, 3: 0.05}, programs={"make": [1.0] * 4})
    others = found(run)
    if sum(of_each.values()) < 1.9:
        assert others is None
        return
    assert others is not None
    assert (others.of_cores, others.all_cores, others.programs) == (2, False, ())
    assert others.cores == pytest.approx(1.95 - 1.2)


def test_programs_that_explain_little_are_not_named(run: Any) -> None:
    machine(run, 3.9, 1.0, programs={"top": [0.1] * 4})
    others = found(run)
    assert others is not None
    assert others.programs == ()


@pytest.mark.parametrize(("usable", "taken"), [(4, 1.5), (2, 0.0), (3, 0.5)])
def test_other_programs_take_cores_of_a_quota_only_if_too_few_others_stay_free(
    run: Any, usable: float, taken: float
) -> None:
    machine(run, 3.9, 2.4)
    run.journals[-1].fact("cores_usable", usable)
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    assert evidence.get(find_cores_of_others, trainer) == pytest.approx(taken)
