"""How many processors the run may use, and how many it wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Processors:
    """One host during the steady loop; figures are None where no monitor watched."""

    host: str
    usable: float | None
    """Cores by affinity and cgroup quota."""
    online: int | None
    busy: float | None
    """Mean number of busy cores of the host."""
    runnable: float | None
    """Mean number of tasks that ran or wanted to."""
    tree_busy: float | None
    """Mean number of cores that the run's own processes used."""
    throttled_share: float | None
    """Share of the time in which the cgroup's quota held processes back."""
    wanted_threads: int | None
    """Compute threads that may run at once: torch's threads of all trainers and of all DataLoader workers."""
    trainers: int
    workers: int
    """DataLoader worker processes alive at once (as configured for the training loaders)."""
    threads_per_trainer: int | None
    threads_per_worker: int | None
    involuntary_switches_per_s: float | None
    """Of the trainers, together: how often the kernel took a processor away from a thread that wanted it."""
