from __future__ import annotations

import os
from pathlib import Path

import pytest
from perfwrap.monitors.host import pair_speed


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@needs_two
def test_the_pair_are_threads_of_one_core_as_the_kernel_says(tmp_path: Path) -> None:
    first, *_, last = sorted(os.sched_getaffinity(0))
    siblings = f"sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list"
    write(tmp_path, siblings, f"{first},{last}\n")
    assert pair_speed.pair(tmp_path) == [first, last]


@needs_two
def test_without_siblings_the_pair_are_the_first_two_usable_cores(tmp_path: Path) -> None:
    assert pair_speed.pair(tmp_path) == sorted(os.sched_getaffinity(0))[:2]


@needs_two
def test_both_kinds_of_work_are_compared_if_the_neighbour_was_idle(tmp_path: Path) -> None:
    speeds = [float(word) for word in pair_speed.measure(_Idle(tmp_path)).split()]  # type: ignore[arg-type]
    # On a busy machine the work may not end in time; then nothing is reported.
    assert len(speeds) in (0, len(pair_speed.WORKS))
    assert all(0.0 < speed <= 1.0 for speed in speeds)


@needs_two
def test_a_busy_neighbour_leaves_it_unknown(tmp_path: Path) -> None:
    core = pair_speed.pair(tmp_path)[1]
    write(tmp_path, "proc/stat", f"cpu{core} 100 0 0 100 0 0 0 0\n")
    assert pair_speed.measure(tmp_path) == ""


class _Idle:
    """A root whose /proc/stat shows that all cores were idle since it was last read."""

    def __init__(self, root: Path) -> None:
        self.root, self.ticks = root, 0

    def __truediv__(self, name: str) -> Path:
        if name == "proc/stat":
            self.ticks += 100
            lines = (f"cpu{core} 0 0 0 {self.ticks}" for core in os.sched_getaffinity(0))
            write(self.root, name, "\n".join(lines) + "\n")
        return self.root / name
