"""Every recording of other people's gets the verdict that an expert would give, as `perfwrap import` reads it."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.json import document
from perfwrap.sources import files

from tests.wrapper.conftest import SCHEMA

BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", BESIDE))
FACTS = json.loads((SHARED / "facts.json").read_text()) if (SHARED / "facts.json").exists() else {}

pytestmark = pytest.mark.skipif(not FACTS, reason=f"no recordings at {SHARED}; set PERFWRAP_SHARED_DATA")

VERDICTS = [
    ("unet3d_a100_baseline_2workers", "data-bound", "idle 75 % of the time"),
    ("unet3d_a100_16workers", "data-bound", "idle 25 % of the time"),
    ("unet3d_a100_dali_tf32", "compute-bound", "convolutions 65 %"),
    ("unet3d_a100_dali_amp", "transfer-bound", "copies from the host"),
    ("vit_a100_4workers_tf32", "compute-bound", "attention 85 %"),
    ("fastvideo_2gpu_before", "compute-bound", "attention 52 %"),
    ("tiny_rtx3080", "unknown", "only 2 kernels"),
    ("SYNTHETIC_healthy", "compute-bound", "99 % of the time"),
    ("cloverleaf_a100__schema", "compute-bound", "86 % of the time"),
    ("cloverleaf_a100_cuda_gpu_trace", "compute-bound", "86 % of the time"),
    (
        "llmc_gpt2_t4_no_kernels",
        "unknown",
        "no kernel was recorded on gpu/0, only 72 copies and 98 memory sets",
    ),
    ("dlprof_convnet", "gpu-idle", "busy 6.8 % of the time"),
    ("toy_v100_with_gpu_counters", "gpu-idle", "busy 0.4 % of the time"),
    ("gpu_user_annotation_gp100", "launch-bound", "idle 77 % of the time"),
    ("alexnet_a100", "memory-bound", "while memory is allocated and freed"),
    ("resnet_v100_ns_resolution", "compute-bound", "convolutions 39 %"),
    ("moe_serving_b200", "launch-bound", "idle 81 % of the time"),
    ("nvtx_daxpy_rtx3070_raw", "memory-bound", "limited by memory bandwidth"),
    ("nvtx_daxpy_rtx3070_details", "memory-bound", "daxpy_kernel, reaches 91 % of the peak"),
    ("silu_vector_h100_raw", "memory-bound", "reaches 89 % of the peak"),
    ("pytorch_rng_gh200", "compute-bound", "reaches 70 % of the peak"),
    # States of an optimizer are created in the first step: two buffers as large as the weights.
    ("llm_train_ctx128_fullstep", "memory-use", "50 % of it from step at optimizers.py:82"),
    ("llm_forward_ctx128", "memory-use", "from forward at transformer.py:22"),
    ("llm_no_history", "memory-use", "When the snapshot was taken, 51 GiB"),
    ("nanogpt_8xh100", "compute-bound", "8 GPUs worked at 97 % utilization"),
    ("idle_then_bursts", "gpu-idle", "nothing to do 98 % of the time"),
    ("vae3d_rtx2080ti", "gpu-idle", "nothing to do"),
    ("bpe_training_multithread", "sync-bound", "MainThread waits in 84 %"),
]
"""Parts of names, the verdict, and words of its sentence."""

UNEXPLAINED = 0.10


@lru_cache(maxsize=2)
def diagnosed(name: str) -> Diagnosis:
    """Return the diagnosis of one recording."""
    timeline, (found,) = files.read([SHARED / name], {})
    assert found.read, found.problem
    return diagnose(timeline)


@pytest.mark.parametrize(("part", "verdict", "words"), VERDICTS, ids=[part for part, _, _ in VERDICTS])
def test_the_verdict_is_that_of_an_expert(part: str, verdict: str, words: str) -> None:
    (name,) = [name for name in FACTS if part in name and not name.endswith("-rep")]
    diagnosis = diagnosed(name)
    assert diagnosis.verdict.id == verdict
    assert words in diagnosis.verdict.sentence
    assert not [outcome for outcome in diagnosis.outcomes if outcome.state == "failed"]
    SCHEMA.validate(document(diagnosis))


def timed() -> list[str]:
    """Return the recordings with the times of enough kernels."""
    traces = [name for name in FACTS if name.startswith(("kineto/", "nsys/"))]
    return [name for name in traces if FACTS[name]["facts"].get("kernels", 0) >= 50]


@pytest.mark.parametrize("name", timed())
def test_idle_time_is_explained_to_the_end(name: str) -> None:
    diagnosis = diagnosed(name)
    assert "was not recorded" not in diagnosis.verdict.sentence
    explained = sum(
        finding.share
        for finding in diagnosis.findings
        if not finding.informational and finding.verdict is not None
    )
    idle = sum(1.0 - gpu.busy_share for gpu in diagnosis.gpu_activity) / len(diagnosis.gpu_activity)
    assert idle - explained < UNEXPLAINED
