"""Looks for a part of the account beside which the finding that a verdict is about is small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.trainers import find_trainers
from perfwrap.rules.model import Finding, Scope

MUCH_LARGER = 3.0
"""How many times as large as a verdict's share another part must be, so that the verdict is not about the finding."""
OWN_SHARE = 0.1
"""Share of what the findings of a verdict claim from which a part belongs to them."""


def find_larger_part(
    evidence: Evidence, group: Sequence[Finding], share: float, account: Mapping[str, int]
) -> tuple[str, float] | None:
    """Return a part of the account that is much larger than a verdict's share, and its share; None without one.

    The model's own work is no waste. On a GPU the account only shows what the host does. Of findings that claim no
    part, or that are not about the training loop of this rank alone, it is unknown which part they are about.
    """
    if any(found.claims is None or found.of_job or found.scope is not Scope.LOOP for found in group):
        return None
    if any(gpu.count("kernel") for gpu in evidence.get(find_gpu_activity)):
        return None
    if any(trains_on_gpu(evidence, trainer) for trainer in evidence.get(find_trainers)):
        return None
    own = _parts_of(evidence, group)
    others = {
        part: ns / sum(account.values()) for part, ns in account.items() if part not in (*COMPUTE_PARTS, *own)
    }
    part = max(others, key=lambda name: others[name], default=None)
    return None if part is None or others[part] < MUCH_LARGER * share else (part, others[part])


def _parts_of(evidence: Evidence, group: Sequence[Finding]) -> set[str]:
    """Return the parts of the account in which the findings claim time."""
    claimed: dict[str, float] = {}
    for trainer in evidence.get(find_trainers):
        account = evidence.get(find_account, trainer)
        for finding in group:
            for part in account.shares:
                inside = account.share_of(finding.claims & (pl.col("part") == part))  # type: ignore[operator]
                claimed[part] = claimed.get(part, 0.0) + inside * account.total_ns
    return {part for part, ns in claimed.items() if ns and ns >= OWN_SHARE * sum(claimed.values())}
