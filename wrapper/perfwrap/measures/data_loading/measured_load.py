"""The measured work of a loader's batches, as the simulation of a loop takes it: without waits for a core."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from perfwrap.measures.account.account import find_account
from perfwrap.measures.data_loading.loader_inputs import BatchTimes
from perfwrap.measures.data_loading.loader_simulation import (
    RECEIVE_NS,
    RECEIVE_NS_PER_BYTE,
    SEND_NS,
    SEND_NS_PER_BYTE,
    Load,
)
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_states import find_making_states, running_and_used
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.trainers import Trainer

MAX_EPOCH = 1_000_000
"""Batches of an epoch whose end was not recorded."""


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def measured_load(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, times: BatchTimes, threads: int, on_gpu: bool
) -> Load:
    """Return the work of a loader's batches, without the time in which they waited for a core."""
    running, used = running_and_used(evidence.timeline, trainer, evidence.get(find_account, trainer))
    # The part of the time in which the training thread wanted a core and had one.
    had = min(1.0, used / running) if running and used is not None else 1.0
    states = evidence.get(find_making_states, trainer, loader)
    # If a GPU does the rest, the host thread may wait for it, which says nothing about making batches.
    wanted = 1.0 if states is None or (on_gpu and not loader.workers) else states.wanting_share
    lost = 0.0 if states is None else min(states.cpu_starvation, wanted)
    if (
        states is not None
        and not loader.workers
        and not on_gpu
        and len(evidence.get(find_ranks_together)) > 1
    ):
        # A rank also waits for others.
        wanted = 1.0 - states.disk_share
        lost = wanted * (1.0 - had)
    kept = max(1e-3, 1.0 - lost)
    making_cpu = min(1.0, (wanted - lost) / kept)
    size = batch_bytes(loader)
    send = 0.0 if loader.workers else SEND_NS + size * SEND_NS_PER_BYTE
    received = times.received if loader.workers else ()
    kept_use = had
    if received and used is not None:
        # A thread mostly waits for a core when it wakes up to receive a batch, not in the middle of its work.
        batch, own = mean(times.using) + mean(times.waits), mean(times.using) - mean(received)
        kept_use = max(had, min(1.0, (used * batch - RECEIVE_NS) / own)) if own > 0.0 else had
    return Load(
        making=tuple(kept * each for each in times.making),
        using=tuple(
            kept_use * (each - part) for each, part in zip_longest(times.using, received, fillvalue=0.0)
        ),
        making_cpu=making_cpu,
        width=_width(evidence, trainer, loader, used, kept * making_cpu, threads, had) if not on_gpu else 1.0,
        receive_ns=had * mean(received) if loader.workers else RECEIVE_NS + size * RECEIVE_NS_PER_BYTE,
        send_ns=send,
        reply_ns=0.0,
        epoch=max(1, loader.batches // max(1, loader.starts)) if loader.starts else MAX_EPOCH,
    )


def batch_bytes(loader: LoaderUse) -> float:
    """Return the size of a batch in bytes; 0 if unknown."""
    return (loader.making.batch_bytes if loader.making is not None else None) or 0.0


def _width(
    evidence: Evidence,
    trainer: Trainer,
    loader: LoaderUse,
    used: float | None,
    making_cpu: float,
    threads: int,
    had: float,
) -> float:
    """Return how many cores the training's own work uses; all its threads if that was not sampled.

    ``making_cpu`` is the part of making batches that ran.
    """
    if used is None:
        return float(threads)
    made = 0.0 if loader.workers else loader.share
    rest = max(1e-3, 1.0 - made)
    return min(float(threads), max(0.1, (used - made * making_cpu) / (rest * had)))
