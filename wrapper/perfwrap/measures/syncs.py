"""Where values came to the host, how often and for how long, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.measures.lines import Line


@dataclass(frozen=True)
class SyncLine:
    """One call on one line; figures are of the steady loop outside of validation."""

    name: str
    """``Tensor.item`` and so on."""
    where: Line | None
    """None for calls too short for the recorder to look their line up."""
    count: int
    per_step: float
    blocked_ns: int
    """Exclusive time inside the call, as the account has it."""
    blocked_ns_per_step: float
    share: float
    """``blocked_ns`` over the whole account."""
    on_gpu: bool
    """Whether any of the tensors was on a GPU: only then the call also holds back the GPU."""
