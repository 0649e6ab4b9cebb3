"""What the rules about a GPU and its host share."""

from __future__ import annotations

from perfwrap.measures.account.loop_figures import gpu_utilization, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_work import find_gpu_work
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.models import find_devices
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import find_transfers
from perfwrap.rules.model import NotChecked

ON_CPU = NotChecked("The model ran on the CPU.")
UNKNOWN_IDLE = "GPU idle time unknown; run with monitors"


def stayed_on_cpu(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the models were on the CPU and nothing was copied to another device."""
    return (
        evidence.get(find_devices, trainer) == {"cpu"}
        and not trains_on_gpu(evidence, trainer)
        and not evidence.get(find_transfers, trainer)
    )


def idle_share(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return the share of time in which the GPU was idle, at most; None if not recorded.

    From a record of its kernels, else from samples of its utilization; events around the phases may show that the GPU
    was busy for more of the time than both.
    """
    step, work = evidence.get(find_ordinary_step, trainer), evidence.get(find_gpu_work, trainer)
    busy = gpu_utilization(evidence) if step is None else step.busy_share
    at_least = None if work is None else work.busy_share[0]
    known = [share for share in (busy, at_least) if share is not None]
    return max(0.0, 1.0 - max(known)) if known else None
