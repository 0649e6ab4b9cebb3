"""Clocks of several hosts on that of the first."""

from __future__ import annotations

import numpy as np
from perfwrap.timeline.clocks import drift_ns, host_clock, to_first_host

WALL = 1_700_000_000_000_000_000


def test_the_first_hosts_times_stay_as_they_are() -> None:
    clock = host_clock([(1_000, WALL), (2_000, WALL + 1_007)])
    times = np.array([1_500, 999_999], dtype=np.int64)
    assert to_first_host(times, clock, clock) is times


def test_another_hosts_times_meet_the_first_ones_at_the_same_wall_time() -> None:
    first, other = host_clock([(1_000, WALL)]), host_clock([(77_000, WALL + 500)])
    assert to_first_host(np.array([77_000, 78_000]), other, first).tolist() == [1_500, 2_500]


def test_drift_between_two_pairs_is_spread_along_the_line() -> None:
    first = host_clock([(0, WALL)])
    other = host_clock([(0, WALL), (1_000_000, WALL + 1_000_100)])
    assert to_first_host(np.array([0, 500_000, 1_000_000]), other, first).tolist() == [0, 500_050, 1_000_100]
    assert drift_ns(other) == 100


def test_beyond_the_pairs_the_nearest_one_holds() -> None:
    clock = host_clock([(100, WALL), (200, WALL + 110)])
    assert (clock.to_wall(np.array([0, 300])) - WALL).tolist() == [-100, 210]


def test_wall_times_keep_their_last_nanosecond() -> None:
    clock = host_clock([(1, WALL + 3), (10**15 + 1, WALL + 3 + 10**15)])
    moments = np.array([1, 123_456_789_012_345, 10**15 + 1], dtype=np.int64)
    assert clock.from_wall(clock.to_wall(moments)).tolist() == moments.tolist()
