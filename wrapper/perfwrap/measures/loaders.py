"""What each DataLoader cost the training thread, and how it was set up."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.measures.lines import Line


@dataclass(frozen=True)
class LoaderUse:
    """One DataLoader of a trainer; figures are of the steady loop (the account) unless they say otherwise.

    Settings are None where the recorder could not read them.
    """

    name: str
    """As DATA spans name it: ``loader/1``."""
    training: bool
    """Whether its batches were trained on; else it fed validation."""
    batches: int
    wait_ns: int
    """Waits for batches, epoch ends and starts of iterators, together."""
    share: float
    """``wait_ns`` over the whole account."""
    median_wait_ns: float | None
    """The median wait for one batch."""
    p99_wait_ns: float | None
    start_ns: int
    """Of ``wait_ns``: making iterators (starting workers) and the first batch of each epoch beyond a median one."""
    starts: int
    """Iterators that were made inside the steady loop."""
    median_start_ns: float | None
    """What one start of an epoch costs: making the iterator and the first batch beyond a median one."""
    epochs: int
    """Iterators that were made in the whole run."""
    workers: int | None
    batch_size: int | None
    pin_memory: bool | None
    prefetch_factor: int | None
    persistent_workers: bool | None
    dataset: str | None
    dataset_length: int | None
    created: Line | None
    """The user's line that made the DataLoader."""
    fetch_ns: float | None
    """What making one batch takes one process, as far as it can be known; see ``fetch_basis``."""
    fetch_basis: str
    """``measured`` (no workers: the wait is the fetch), ``worker cpu`` (processor time of the workers per batch),
    ``throughput`` (workers were the limit: workers x time per batch), or ``unknown``."""
