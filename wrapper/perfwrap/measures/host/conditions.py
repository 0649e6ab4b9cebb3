"""The conditions of a run as plain texts: machine, GPUs, versions, settings, environment, batch and world size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.concurrent_loops import find_concurrent_trainers
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.timeline.lookup import facts_of, host_facts
from perfwrap.timeline.model import Timeline

HOST_KEYS = ("cpu_model", "cores_usable", "cpu_quota_cores", "memory_total_bytes", "kernel")
"""Facts of a host that its speed depends on."""

VERSION_KEYS = ("torch", "torch_cuda", "python")

NOT_CONDITIONS = re.compile(
    r"(^|/)(line|created|uuid|workers|cuda_device_uuid)$"
    r"|^(ppid|argv|started|journal_bytes|start_ticks|cmdline|sample_times|executable|reached_by|role|ptracer"
    r"|rank|cores|restart_count|group/.*|cuda_device|compile/.*|scaler/.*|gpu_time/.*|live_graph/.*|item/.*|cell/.*|notebook)$"
)
"""Facts of a process about its identity, time, locations or progress: these are not conditions."""


def find_conditions(evidence: Evidence) -> dict[str, str]:
    """Return the known conditions; unknown ones are absent.

    ``host/…`` is the machine, ``gpu`` the GPUs by name, ``run/…`` the recording options, ``env/…`` the environment,
    ``world_size``, ``samples_per_step`` and ``trainers`` the size of the work; all others are versions and settings of
    the main training thread.
    """
    timeline, main = evidence.timeline, evidence.get(find_main_trainer)
    found = dict(_of_manifest(timeline.run))
    if main is None:
        return found
    facts = facts_of(timeline, main.process)
    found.update({f"host/{key}": value for key, value in _of_host(timeline, main.host)})
    found.update({key: value for key, value in facts.items() if not NOT_CONDITIONS.search(key)})
    gpus = _gpus(timeline, main.host, facts)
    if gpus:
        found["gpu"] = gpus
    found["trainers"] = str(len(evidence.get(find_concurrent_trainers)))
    samples = _samples_per_step(evidence.get(find_steps, main))
    if samples:
        found["samples_per_step"] = samples
    return found


def _of_manifest(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return host, environment and recording options as the launcher wrote them."""
    host = run.get("host")
    if isinstance(host, dict):
        yield from (
            (f"host/{key}", str(host[key])) for key in ("name", *HOST_KEYS) if host.get(key) is not None
        )
        if host.get("gpus"):
            yield "gpu", ", ".join(str(name) for name in host["gpus"])
    environment = run.get("environment")
    if isinstance(environment, dict):
        yield from ((f"env/{key}", str(value)) for key, value in environment.items())
    options = run.get("options")
    if isinstance(options, dict):
        given = {key: value for key, value in options.items() if key not in ("out", "report", "name", "tags")}
        yield from ((f"run/{key}", str(value)) for key, value in given.items() if value not in (None, "", []))


def _of_host(timeline: Timeline, host: str) -> Iterator[tuple[str, str]]:
    """Return what the monitors found about the trainer's machine."""
    facts = host_facts(timeline, host)
    yield from ((key, facts[key]) for key in HOST_KEYS if key in facts)


def _gpus(timeline: Timeline, host: str, facts: dict[str, str]) -> str:
    """Return the GPU that the trainer used, as torch names it, or else those of the host."""
    if "cuda_device_name" in facts:
        return facts["cuda_device_name"]
    tracks = timeline.tracks.filter(pl.col("kind") == "gpu", pl.col("host") == host)
    names = timeline.facts.filter(pl.col("key") == "name", pl.col("track").is_in(tracks["id"].to_list()))
    return ", ".join(names.unique("track", keep="last", maintain_order=True)["value"].to_list())


def _samples_per_step(steps: Steps) -> str:
    """Return the batch size of most steady steps; empty if no loader shows it."""
    samples = steps.table.filter("steady")["samples"].drop_nulls()
    return "" if samples.is_empty() else str(samples.mode().sort()[-1])
