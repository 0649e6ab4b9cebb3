"""Popular advice that would bring little to this program, each from a measured figure.

An advice is named only if it applies (there is a DataLoader, a value is read), if its gain is known to be below
MAX_GAIN in every training thread, and if no finding gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.data_loading.loader_simulation import RECEIVE_NS
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_need import Step, best_workers, measured_step, saved
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.busy_functions import find_busy_functions
from perfwrap.measures.loop.call_sites import find_call_sites
from perfwrap.measures.loop.optimizers import find_optimizers
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.models import find_devices
from perfwrap.measures.run.measured_changes import MIN_GAIN, find_tried
from perfwrap.measures.steps.enough import are_enough
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.measures.transfers.transfers import find_transfers
from perfwrap.rules.levers import FUSED
from perfwrap.rules.model import Finding

MAX_GAIN = MIN_GAIN
"""Share of the training loop from which advice may be worth it."""
MAX_NAMED = 4
MAX_CHEAP = 2.0
"""Time to make a batch, over that to receive one from a worker, up to which both are about the same."""
MANY_CORES = 0.9
"""Share of the usable cores in use from which no core is free."""


class Unhelpful(Struct, frozen=True):
    """An advice that would bring little, and the figure that shows it; ``changes`` are its names in `perfwrap try`."""

    advice: str
    why: str
    changes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Both, in one sentence."""
        return f"{self.advice}: {self.why}."


Popular = Callable[[Evidence, Trainer], Unhelpful | None]


def find_unhelpful(evidence: Evidence, findings: Sequence[Finding]) -> tuple[Unhelpful, ...]:
    """Return at most MAX_NAMED popular advices that would bring little, the most popular first."""
    trainers = evidence.get(find_trainers)
    if not trainers or not all(evidence.get(are_enough, trainer) for trainer in trainers):
        return ()
    advised = {
        change.partition("=")[0]
        for finding in findings
        for option in finding.options
        for change in (option.experiment or "").split("+")
    }
    found = []
    for popular in POPULAR:
        answers = [popular(evidence, trainer) for trainer in trainers]
        first = answers[0]
        if first is not None and None not in answers and advised.isdisjoint(first.changes):
            found.append(first)
    return tuple(found[:MAX_NAMED])


def _reads(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
    """Reading values of tensors less often; nothing where functions that read many take time, with their reads."""
    if any(function.share >= MAX_GAIN for function in evidence.get(find_busy_functions, trainer)):
        return None
    lines = evidence.get(find_syncs, trainer)
    calls = sum(line.per_step for line in lines)
    share = sum(line.share for line in lines)
    if not calls or share >= MAX_GAIN:
        return None
    rarely = round(1 / calls)
    often = f"once in {rarely} steps" if rarely > 1 else f"{units.number(max(1.0, calls))} per step"
    return Unhelpful(
        "Fewer .item() calls",
        f"they take {units.share(share)} of the loop ({often})",
        ("defer-item",),
    )


def _workers(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
    """More DataLoader workers."""
    loaders = _training_loaders(evidence, trainer)
    if not loaders:
        return None
    share = sum(loader.share for loader in loaders)
    if share < MAX_GAIN:
        return Unhelpful(
            "More DataLoader workers",
            f"waits for batches take {units.share(share)} of the loop",
            ("workers",),
        )
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in loaders]
    why = {_no_use(loader, step) for loader, step in steps}
    words = why.pop() if len(why) == 1 else None
    return Unhelpful("More DataLoader workers", words, ("workers",)) if words else None


def _no_use(loader: LoaderUse, step: Step | None) -> str | None:
    """Return why workers gain nothing although the training waits for batches; None if they may."""
    if loader.of_daemon:
        return "the process is a daemon, which may have no children"
    if step is None or step.crowded or loader.workers or step.cores is None or best_workers(step):
        return None
    if saved(step, 1)[0] <= 1.0 - MIN_GAIN:
        return None
    if step.work_ns >= MANY_CORES * step.cores * step.now_ns:
        return f"the training keeps its {units.counted(round(step.cores), 'core')} busy"
    if step.fetch_ns <= MAX_CHEAP * RECEIVE_NS:
        return f"a batch takes {units.duration(step.fetch_ns)} to make and about as long to send"
    return None


def _pinning(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
    """Pinned memory and copies that do not block."""
    loaders = _training_loaders(evidence, trainer)
    if not loaders or all(loader.pin_memory for loader in loaders):
        return None
    if not trains_on_gpu(evidence, trainer):
        if evidence.get(find_devices, trainer) != {"cpu"} or evidence.get(find_transfers, trainer):
            return None
        return Unhelpful(
            "pin_memory and non_blocking", "nothing is copied to a GPU", ("pin-memory", "non-blocking")
        )
    copies = [line for line in evidence.get(find_transfers, trainer) if line.direction == "to_gpu"]
    share = sum(line.share for line in copies)
    if not copies or share >= MAX_GAIN:
        return None
    return Unhelpful(
        "pin_memory and non_blocking",
        f"copies to the GPU take {units.share(share)} of the loop",
        ("pin-memory", "non-blocking"),
    )


def _fused(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
    """Fused and foreach optimizers; on a GPU the host's time says nothing about it."""
    uses = evidence.get(find_optimizers, trainer)
    share = sum(use.share for use in uses)
    if not uses or trains_on_gpu(evidence, trainer) or share >= MAX_GAIN:
        return None
    if all(use.fused or FUSED in use.kind for use in uses):
        return None
    return Unhelpful(
        "A fused or foreach optimizer",
        f"optimizer steps take {units.share(share)} of the loop",
        ("fused-optimizer",),
    )


def _persistent(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
    """Workers that stay alive between epochs."""
    loaders = [loader for loader in _training_loaders(evidence, trainer) if loader.workers]
    if not loaders or all(loader.persistent_workers for loader in loaders):
        return None
    if all(loader.epochs == 1 for loader in loaders):
        return Unhelpful(
            "persistent_workers", "the workers start once, for one epoch", ("persistent-workers",)
        )
    share = sum(loader.start_ns for loader in loaders) / max(1, evidence.get(find_account, trainer).total_ns)
    if share >= MAX_GAIN or not all(loader.starts for loader in loaders):
        return None
    return Unhelpful(
        "persistent_workers",
        f"starting workers takes {units.share(share)} of the loop",
        ("persistent-workers",),
    )


def _set_to_none(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
    """Freeing gradients instead of writing zeros, where the program switched it off."""
    sites = evidence.get(find_call_sites, trainer, "zero_grad")
    if not any(site.options.get("set_to_none") == "False" for site in sites):
        return None
    share = evidence.get(find_account, trainer).share_of(
        (pl.col("operation") == "zero_grad") & (pl.col("part") == "optimizer")
    )
    if trains_on_gpu(evidence, trainer) or share >= MAX_GAIN:
        return None
    return Unhelpful(
        "zero_grad(set_to_none=True)", f"zero_grad takes {units.share(share)} of the loop", ("set-to-none",)
    )


def _measured(change: str, advice: str) -> Popular:
    """Return the check of a change that `perfwrap try` measured without a gain."""

    def ask(evidence: Evidence, trainer: Trainer) -> Unhelpful | None:
        tried = evidence.get(find_tried).get(change)
        if tried is None or not tried.is_useless:
            return None
        ratios = units.ratio(tried.ratio, tried.low, tried.high)
        return Unhelpful(advice, f"`perfwrap try` measured {ratios} of the step time", (change,))

    return ask


def _training_loaders(evidence: Evidence, trainer: Trainer) -> list[LoaderUse]:
    """Return the loaders whose batches are trained on."""
    return [loader for loader in evidence.get(find_loaders, trainer) if loader.training]


POPULAR: tuple[Popular, ...] = (
    _measured("compile", "torch.compile"),
    _measured("bf16", "bfloat16 autocast"),
    _workers,
    _reads,
    _pinning,
    _fused,
    _persistent,
    _set_to_none,
)
"""The most popular first; measured results before all others."""
