"""What perfwrap's reading half says of the recordings of gpu_check.py; needs perfwrap's own dependencies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfwrap.analysis.run_reader import read_timeline
from perfwrap.measures.account.intervals import length
from perfwrap.measures.dataflow.line_account import find_line_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import gpu_of
from perfwrap.measures.kernels.phase_idle import find_phase_idle
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.run_folder import RunFolder

Found = dict[str, Any]


def read_idle(folder: Path, found: Found) -> Found:
    """Return the shares of the time for which each cause is blamed: by events, and by a record of kernels.

    Copies that no kernel hides count for ``transfer``, as the host does: the GPU is not idle then, but waits for data.
    """
    evidence = Evidence(read_timeline(RunFolder(folder)))
    trainer = evidence.get(find_main_trainer)
    ways: Found = {}
    if trainer is None:
        return ways
    phases, gpu = evidence.get(find_phase_idle, trainer), evidence.get(gpu_of, trainer)
    if phases is not None:
        ways["events"] = {cause: round(share, 4) for cause, share in phases.shares.items()}
    if gpu is not None:
        shares = {cause: round(share, 4) for cause, share in gpu.idle_shares.items()}
        copied = length(gpu.exposed_copies) / gpu.window_ns
        ways["kernels"] = {**shares, "transfer": round(shares.get("transfer", 0.0) + copied, 4)}
    return ways


def read_inspect(folder: Path, found: Found) -> Found:
    """Return how many lines of a step have a cost."""
    evidence = Evidence(read_timeline(RunFolder(folder)))
    trainer = evidence.get(find_main_trainer)
    account = None if trainer is None else evidence.get(find_line_account, trainer)
    return {"lines": 0 if account is None else len(account.lines)}


READ: dict[str, Callable[[Path, Found], Found]] = {"idle": read_idle, "inspect": read_inspect}
"""How the recordings of each part are read."""
