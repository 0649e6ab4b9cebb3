"""The peak performance of GPUs from their makers' documents: FLOP/s by precision, memory bandwidth, and their balance.

Figures are dense (without sparsity), with boost clocks, as PyTorch uses the units: tensor cores with sums in fp32.
GeForce cards sum in fp32 at half the rate that is usually quoted. A kernel with fewer FLOPs per byte than the balance
point is at best memory-bound (Williams, Waterman, Patterson: Roofline, CACM 52/4, 2009).
"""

from __future__ import annotations

import re

import polars as pl
from msgspec import Struct

from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.timeline.lookup import facts_of

T, G = 1e12, 1e9


class Peaks(Struct, frozen=True):
    """One product: FLOP/s without tensor cores, with TF32, with 16 bits (0: not supported, or not confirmed).

    ``source`` names the maker's document and, in brackets, the public tables or copies that were read in 2026.
    """

    product: str
    fp32: float
    tf32: float
    half: float
    bandwidth: float
    source: str

    def flops(self, precision: str) -> float:
        """Return FLOP/s of ``fp32``, ``tf32`` or ``half``; 0 if not supported, and for other words."""
        return {"fp32": self.fp32, "tf32": self.tf32, "half": self.half}.get(precision, 0.0)

    def balance(self, precision: str) -> float:
        """Return the balance point in FLOPs per byte."""
        return self.flops(precision) / self.bandwidth


V100 = "NVIDIA V100 data sheet (Lightning, Composer, llm-analysis)"
T4 = "NVIDIA T4 data sheet (Lightning, Composer; memory: NVIDIA's product page)"
A100 = "NVIDIA A100 data sheet (Lightning, Composer, llm-analysis)"
A10 = "NVIDIA A10 data sheet (Composer, llm-analysis)"
A10G = "NVIDIA A10G data sheet of AWS (Baseten; TF32 was not found)"
A30 = "NVIDIA A30 data sheet (xFormers)"
A40 = "NVIDIA A40 data sheet (Lightning, a dealer's copy)"
L4 = "NVIDIA Ada whitepaper, appendix D (Lightning; memory: NVIDIA's product page)"
L40 = "NVIDIA L40 and L40S data sheets (Lightning, torchtitan, a dealer's copy)"
H100 = "NVIDIA H100 data sheet, halved (Lightning, Composer, ml-engineering)"
H200 = "NVIDIA H200 data sheet, halved (Lightning, Composer, ml-engineering)"
H200_NVL = "NVIDIA H200 product page, halved (two copies; Lightning has an older 840)"
GH200 = "NVIDIA GH200 data sheet (ml-engineering; memory: NVIDIA's product page)"
BLACKWELL = "NVIDIA Blackwell data sheet, halved (a copy; memory: ml-engineering)"
GA102 = "NVIDIA Ampere GA102 whitepaper, table 3 and appendix A (Lightning, copies)"
ADA = "NVIDIA Ada whitepaper (Lightning, copies of its tables)"
RTX_6000_ADA = "NVIDIA RTX PRO Blackwell whitepaper, table 4 (a copy; TF32 was not found)"
RTX_BLACKWELL = "NVIDIA RTX Blackwell whitepaper, table 3 (copies)"
TURING = "NVIDIA Turing whitepaper, reference clocks (copies); the Founders Edition is 6 % faster"
AMD = "AMD Instinct data sheets and product pages (PyTorch's device_info.py, ml-engineering)"

ANY = (0.0, float("inf"))

PRODUCTS: tuple[tuple[str, tuple[float, float], Peaks], ...] = (
    (r"V100S-PCIE", ANY, Peaks("V100S PCIe", 16.4 * T, 0, 130 * T, 1134 * G, V100)),
    (r"V100-PCIE", ANY, Peaks("V100 PCIe", 14 * T, 0, 112 * T, 900 * G, V100)),
    # The DGX Station's card has the clocks of the SXM2 module.
    (r"V100-(SXM2|DGXS)", ANY, Peaks("V100 SXM2", 15.7 * T, 0, 125 * T, 900 * G, V100)),
    (r"\bT4$", ANY, Peaks("T4", 8.1 * T, 0, 65 * T, 320 * G, T4)),
    (r"A100\b.*PCIE", (75e9, 90e9), Peaks("A100 PCIe 80 GB", 19.5 * T, 156 * T, 312 * T, 1935 * G, A100)),
    (r"A100\b", (75e9, 90e9), Peaks("A100 SXM4 80 GB", 19.5 * T, 156 * T, 312 * T, 2039 * G, A100)),
    (r"A100\b", (38e9, 45e9), Peaks("A100 40 GB", 19.5 * T, 156 * T, 312 * T, 1555 * G, A100)),
    (r"\bA10$", ANY, Peaks("A10", 31.2 * T, 62.5 * T, 125 * T, 600 * G, A10)),
    (r"\bA10G$", ANY, Peaks("A10G", 35 * T, 0, 70 * T, 600 * G, A10G)),
    (r"\bA30$", ANY, Peaks("A30", 10.3 * T, 82 * T, 165 * T, 933 * G, A30)),
    (r"\bA40$", ANY, Peaks("A40", 37.4 * T, 74.8 * T, 149.7 * T, 696 * G, A40)),
    (r"RTX A6000$", ANY, Peaks("RTX A6000", 38.7 * T, 77.4 * T, 154.8 * T, 768 * G, GA102)),
    (r"\bL4$", ANY, Peaks("L4", 30.3 * T, 60 * T, 121 * T, 300 * G, L4)),
    (r"\bL40$", ANY, Peaks("L40", 90.5 * T, 90.5 * T, 181 * T, 864 * G, L40)),
    (r"\bL40S$", ANY, Peaks("L40S", 91.6 * T, 183 * T, 362 * T, 864 * G, L40)),
    (r"RTX 6000 Ada", ANY, Peaks("RTX 6000 Ada", 91.1 * T, 0, 364 * T, 960 * G, RTX_6000_ADA)),
    (r"\bH100 NVL", ANY, Peaks("H100 NVL", 60 * T, 417.5 * T, 835.5 * T, 3.9 * T, H100)),
    (r"\bH100 PCIe", ANY, Peaks("H100 PCIe", 51 * T, 378 * T, 756.5 * T, 2.0 * T, H100)),
    (r"\bH100 80GB HBM3", ANY, Peaks("H100 SXM", 67 * T, 494.5 * T, 989.5 * T, 3.35 * T, H100)),
    (r"\bH200 NVL", ANY, Peaks("H200 NVL", 60 * T, 417.5 * T, 835.5 * T, 4.8 * T, H200_NVL)),
    (r"\bH200$", ANY, Peaks("H200 SXM", 67 * T, 494.5 * T, 989.5 * T, 4.8 * T, H200)),
    (r"\bGH200 144G", ANY, Peaks("GH200 144 GB", 67 * T, 494.5 * T, 989.5 * T, 4.9 * T, GH200)),
    # 120 and 480 are the gigabytes of the CPU.
    (r"\bGH200 (120|480)GB", ANY, Peaks("GH200 96 GB", 67 * T, 494.5 * T, 989.5 * T, 4.0 * T, GH200)),
    (r"\bB200$", ANY, Peaks("B200", 75 * T, 1100 * T, 2250 * T, 8.0 * T, BLACKWELL)),
    (r"\bGB200$", ANY, Peaks("GB200", 80 * T, 1250 * T, 2500 * T, 8.0 * T, BLACKWELL)),
    (r"RTX 2080 Ti$", ANY, Peaks("RTX 2080 Ti", 13.4 * T, 0, 53.8 * T, 616 * G, TURING)),
    (r"RTX 3070$", ANY, Peaks("RTX 3070", 20.3 * T, 20.3 * T, 40.6 * T, 448 * G, GA102)),
    # The 12 GB version has the same name and other figures.
    (r"RTX 3080$", (9e9, 11e9), Peaks("RTX 3080 10 GB", 29.8 * T, 29.8 * T, 59.5 * T, 760 * G, GA102)),
    (r"RTX 3090$", ANY, Peaks("RTX 3090", 35.6 * T, 35.6 * T, 71 * T, 936 * G, GA102)),
    (r"RTX 3090 Ti$", ANY, Peaks("RTX 3090 Ti", 40 * T, 40 * T, 80 * T, 1008 * G, ADA)),
    (r"RTX 4080$", ANY, Peaks("RTX 4080", 48.7 * T, 48.7 * T, 97.5 * T, 717 * G, ADA)),
    (r"RTX 4090$", ANY, Peaks("RTX 4090", 82.6 * T, 82.6 * T, 165.2 * T, 1008 * G, ADA)),
    (r"RTX 5090$", ANY, Peaks("RTX 5090", 104.8 * T, 104.8 * T, 209.5 * T, 1792 * G, RTX_BLACKWELL)),
    (r"\bMI300X\b", ANY, Peaks("MI300X", 163.4 * T, 653.7 * T, 1307.4 * T, 5.3 * T, AMD)),
    (r"\bMI325X\b", ANY, Peaks("MI325X", 163.4 * T, 653.7 * T, 1307.4 * T, 6.0 * T, AMD)),
    (r"\bMI355X\b", ANY, Peaks("MI355X", 157.3 * T, 0, 2500 * T, 8.0 * T, AMD)),
)
"""A pattern of the driver's name, the range of memory sizes, and the figures; the first match counts. Patterns end with
the name, because laptop and reduced versions have the same name with a suffix."""

PARTS = re.compile(r"\bMIG\b|\bGRID\b|-\d+[ABCQ]$", re.IGNORECASE)
"""Slices (MIG) and virtual GPUs: they have an unknown part of the figures."""


def peaks_named(name: str, memory_bytes: float | None = None) -> Peaks | None:
    """Return the figures of the product with that name; None if it is not in the table."""
    name = name.strip()
    if PARTS.search(name):
        return None
    for pattern, (least, most), peaks in PRODUCTS:
        sized = (least, most) == ANY or (memory_bytes is not None and least <= memory_bytes <= most)
        if sized and re.search(pattern, name, re.IGNORECASE):
            return peaks
    return None


def peaks_of(gpu: GpuActivity) -> Peaks | None:
    """Return the figures of a GPU whose kernels were recorded; None if unknown, or if it is a slice."""
    tracks = gpu.timeline.tracks
    found = tracks.filter(
        pl.col("kind") == "gpu", pl.col("name") == gpu.device, pl.col("host").fill_null("") == gpu.host
    )
    if found.is_empty():
        return None
    facts = facts_of(gpu.timeline, found["id"][0])
    if facts.get("mig") == "on":
        return None
    memory = facts.get("memory_total_bytes", "")
    # If the size is not a number, it comes from another tool, and the name alone must be enough.
    return peaks_named(facts.get("name", ""), float(memory) if memory.isdecimal() else None)
