"""What perfwrap itself cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnCost:
    """Perfwrap's cost for one trainer's steady loop, and for the whole run."""

    recorded_ns: int
    """Own work that the recorder timed (PERFWRAP spans) on the training thread."""
    probes_ns: int
    """Estimate of the probes' own time: records x cost per record, see RECORD_NS."""
    share: float
    """Both over the whole account."""
    records: int
    """Records of the steady loop on the training thread."""
    monitor_cores: float | None
    """Cores that the monitors used, None when nothing sampled them."""
    journal_bytes: int | None
