"""The generation of a GPU, from its driver or its kernels."""

from __future__ import annotations

import re

import polars as pl

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_activity import GpuActivity, gpu_of
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of

VOLTA, AMPERE = 7, 8
"""Major compute capabilities: tensor cores exist from VOLTA on; they accept TF32 and bfloat16 from AMPERE on."""

NAMES = (
    (r"V100|Titan V|T4\b|RTX 20|RTX \d000\b(?! Ada)|Turing|GTX 16", 7),
    (r"A100|A10\b|A10G|A16\b|A2\b|A30|A40|RTX A\d|RTX 30|L4\b|L40|RTX 40|Ada", 8),
    (r"H100|H200|GH200|H20\b|H800", 9),
    (r"B100|B200|GB200|B300|RTX 50|RTX PRO \d+ Blackwell", 10),
    (r"P100|P40|P4\b|GTX 10|Titan Xp|K80|M40|M60", 6),
)
"""Products whose name shows the generation; the first match counts."""

KERNELS = (
    (r"hopper_|sm90_|_sm90", 9),
    (r"ampere_|sm8\d_|_sm8\d|cutlass_80", 8),
    (r"volta_|turing_|sm7\d_", 7),
)
"""Patterns in names of kernels: a kernel is never newer than the GPU that runs it."""


def major_capability(gpu: GpuActivity) -> int | None:
    """Return the minimum major compute capability of an NVIDIA GPU; None if unknown."""
    tracks = gpu.timeline.tracks
    found = tracks.filter(
        pl.col("kind") == "gpu", pl.col("name") == gpu.device, pl.col("host").fill_null("") == gpu.host
    )
    facts = facts_of(gpu.timeline, found["id"][0]) if found.height else {}
    capability = re.match(r"(\d+)", facts.get("compute_capability", ""))
    if capability:
        return int(capability[1])
    product = _of_product(facts.get("name", ""))
    if product is not None:
        return product
    names = gpu.events.table["name"].unique()
    return next((major for pattern, major in KERNELS if names.str.contains(pattern).any()), None)


def find_major_capability(evidence: Evidence, trainer: Trainer) -> int | None:
    """Return the same for the GPU that a trainer uses, also if no kernels were recorded; None if unknown."""
    gpu = evidence.get(gpu_of, trainer)
    if gpu is not None:
        return major_capability(gpu)
    return _of_product(evidence.get(find_facts, trainer.process).get("cuda_device_name", ""))


def _of_product(name: str) -> int | None:
    """Return the major compute capability of a product, None if its name does not show it."""
    return next((major for pattern, major in NAMES if re.search(pattern, name, re.IGNORECASE)), None)
