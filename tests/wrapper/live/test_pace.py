from __future__ import annotations

import time

from perfwrap.live.pace import SECOND_NS, Pace


def burn(nanoseconds: int) -> int:
    end = time.process_time_ns() + nanoseconds
    while time.process_time_ns() < end:
        pass
    return 7


def test_cheap_work_is_due_again_after_a_second() -> None:
    pace = Pace(0.01)
    assert pace.is_due(5)
    assert pace.run(5, lambda: 7) == 7
    assert not pace.is_due(5 + SECOND_NS - 1)
    assert pace.is_due(5 + 2 * SECOND_NS)


def test_expensive_work_waits_until_its_share_allows_it() -> None:
    pace = Pace(0.01)
    pace.run(0, lambda: burn(50_000_000))
    assert pace.is_due(SECOND_NS)
    assert pace.run(0, lambda: burn(50_000_000)) == 7
    assert not pace.is_due(5 * SECOND_NS - 1)
