"""What a GPU can do at most, by its makers' data sheets: FLOP/s by precision, bytes/s of its memory, and their balance.

Figures are dense ones (without sparsity), with boost clocks, as PyTorch uses the units: tensor cores with sums in
fp32. A kernel that does fewer FLOPs per byte than the balance point is limited by memory at best (Williams,
Waterman, Patterson: Roofline, CACM 52/4, 2009).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.timeline.lookup import facts_of

T, G = 1e12, 1e9
LARGE_MEMORY = 60e9
"""Bytes; tells the A100 of 80 GB from that of 40 GB, whose memories differ in speed."""


@dataclass(frozen=True)
class Peaks:
    """Of one product: FLOP/s outside of tensor cores, with TF32, with 16 bits (0: it cannot), and bytes/s."""

    product: str
    fp32: float
    tf32: float
    half: float
    bandwidth: float
    source: str

    def flops(self, precision: str) -> float:
        """Return FLOP/s of ``fp32``, ``tf32`` or ``half``; 0 for what it cannot do, and for other words."""
        return {"fp32": self.fp32, "tf32": self.tf32, "half": self.half}.get(precision, 0.0)

    def balance(self, precision: str) -> float:
        """Return the balance point in FLOPs per byte."""
        return self.flops(precision) / self.bandwidth


V100 = "NVIDIA V100 data sheet (2020)"
A100 = "NVIDIA A100 data sheet (2021)"
H100 = "NVIDIA H100 data sheet (2023)"
AMPERE_CARDS = "NVIDIA Ampere GA102 whitepaper, tables 2, 3 and 9"
ADA_CARDS = "NVIDIA Ada GPU architecture whitepaper, appendix A"

PRODUCTS: tuple[tuple[str, bool | None, Peaks], ...] = (
    (r"V100(?!\d).*(PCIE|FHHL)", None, Peaks("V100 PCIe", 14 * T, 0, 112 * T, 900 * G, V100)),
    (r"V100(?!\d)", None, Peaks("V100 SXM2", 15.7 * T, 0, 125 * T, 900 * G, V100)),
    (r"\bT4\b", None, Peaks("T4", 8.1 * T, 0, 65 * T, 320 * G, "NVIDIA T4 data sheet (2019)")),
    (r"A100(?!\d).*PCIE", True, Peaks("A100 PCIe 80 GB", 19.5 * T, 156 * T, 312 * T, 1935 * G, A100)),
    (r"A100(?!\d)", True, Peaks("A100 SXM4 80 GB", 19.5 * T, 156 * T, 312 * T, 2039 * G, A100)),
    (r"A100(?!\d)", False, Peaks("A100 40 GB", 19.5 * T, 156 * T, 312 * T, 1555 * G, A100)),
    (r"\bA10\b", None, Peaks("A10", 31.2 * T, 62.5 * T, 125 * T, 600 * G, "NVIDIA A10 data sheet (2021)")),
    (r"\bA30\b", None, Peaks("A30", 10.3 * T, 82 * T, 165 * T, 933 * G, "NVIDIA A30 data sheet (2021)")),
    (r"\bA40\b", None, Peaks("A40", 37.4 * T, 74.8 * T, 149.7 * T, 696 * G, "NVIDIA A40 data sheet (2021)")),
    (r"\bL4\b", None, Peaks("L4", 30.3 * T, 60 * T, 121 * T, 300 * G, "NVIDIA L4 data sheet (2023)")),
    (r"\bL40S\b", None, Peaks("L40S", 91.6 * T, 183 * T, 362 * T, 864 * G, "NVIDIA L40S data sheet (2023)")),
    (
        r"(?<!G)H200(?!\d)",
        None,
        Peaks("H200 SXM", 67 * T, 494.5 * T, 989.5 * T, 4.8 * T, "NVIDIA H200 data sheet (2024)"),
    ),
    (r"H100(?!\d).*NVL", None, Peaks("H100 NVL", 60 * T, 417.5 * T, 835.5 * T, 3.9 * T, H100)),
    (r"H100(?!\d).*PCIe", None, Peaks("H100 PCIe", 51 * T, 378 * T, 756 * T, 2.0 * T, H100)),
    (r"H100(?!\d)", None, Peaks("H100 SXM", 67 * T, 494.5 * T, 989.5 * T, 3.35 * T, H100)),
    (
        r"\bB200",
        None,
        Peaks("B200", 75 * T, 1100 * T, 2250 * T, 7.7 * T, "NVIDIA DGX B200 and HGX data sheets (2025)"),
    ),
    (r"RTX 3080(?! Ti)", None, Peaks("RTX 3080", 29.8 * T, 29.8 * T, 59.5 * T, 760 * G, AMPERE_CARDS)),
    (r"RTX 3090(?! Ti)", None, Peaks("RTX 3090", 35.6 * T, 35.6 * T, 71 * T, 936 * G, AMPERE_CARDS)),
    (r"RTX 4090", None, Peaks("RTX 4090", 82.6 * T, 82.6 * T, 165.2 * T, 1008 * G, ADA_CARDS)),
    (r"RTX 4080(?! SUPER)", None, Peaks("RTX 4080", 48.7 * T, 48.7 * T, 97.5 * T, 717 * G, ADA_CARDS)),
    (
        r"RTX 2080 Ti",
        None,
        Peaks("RTX 2080 Ti", 13.4 * T, 0, 53.8 * T, 616 * G, "NVIDIA Turing whitepaper, table 1 (reference)"),
    ),
    (
        r"MI300X",
        None,
        Peaks("MI300X", 163.4 * T, 653.7 * T, 1307.4 * T, 5.3 * T, "AMD Instinct MI300X data sheet (2023)"),
    ),
)
"""A pattern of the driver's name, whether its memory is the larger one (None: either), and the figures; the first
that matches counts."""


def peaks_named(name: str, memory_bytes: float | None = None) -> Peaks | None:
    """Return the figures of the product of that name; None for one that the table lacks."""
    for pattern, large, peaks in PRODUCTS:
        sized = large is None or (memory_bytes is not None and (memory_bytes > LARGE_MEMORY) == large)
        if sized and re.search(pattern, name, re.IGNORECASE):
            return peaks
    return None


def peaks_of(gpu: GpuActivity) -> Peaks | None:
    """Return the figures of a GPU whose kernels were recorded; None where its name is not in the table."""
    tracks = gpu.timeline.tracks
    found = tracks.filter(
        pl.col("kind") == "gpu", pl.col("name") == gpu.device, pl.col("host").fill_null("") == gpu.host
    )
    if found.is_empty():
        return None
    facts = facts_of(gpu.timeline, found["id"][0])
    memory = facts.get("memory_total_bytes", "")
    # A figure of bytes that is none comes from another tool; the name alone must do then.
    return peaks_named(facts.get("name", ""), float(memory) if memory.isdigit() else None)
