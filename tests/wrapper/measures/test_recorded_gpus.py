"""Real recordings of other people's: what was measured by other means, and what their sources say, comes out again."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.diagnosis.verdict import failed
from perfwrap.measures.account.intervals import length
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.critical_path import HOST, LAUNCH, QUEUED
from perfwrap.measures.kernels.gpu_activity import GpuActivity, find_gpu_activity, find_whole_activity
from perfwrap.measures.kernels.gpu_figures import GpuFigures, gpu_figures
from perfwrap.reports.json import document
from perfwrap.sources.kineto import kineto_trace
from perfwrap.sources.nsys import nsys_export
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", BESIDE))
FACTS = json.loads((SHARED / "facts.json").read_text()) if (SHARED / "facts.json").exists() else {}
TRACES = sorted(
    name
    for name, about in FACTS.items()
    if about["facts"].get("kernels") and (name.startswith("kineto/") or ".sqlite" in name)
)
MS = 1e6
KEYS = {
    "kernels", "copies", "memsets", "launches", "window_ns", "busy_share", "kernels_busy_share", "collective_ns",
    "collective_exposed_ns", "h2d_exposed_ns", "idle", "critical_path", "critical_path_host",
}  # fmt: skip
"""What programs that read diagnosis.json rely on."""
TOLERANCE = 0.005
DIGIT = 0.006
"""Figures are written with two or three decimals."""

pytestmark = pytest.mark.skipif(not TRACES, reason=f"no recordings at {SHARED}; set PERFWRAP_SHARED_DATA")


@lru_cache(maxsize=3)
def read(name: str) -> Timeline:
    """Return the timeline of one recording."""
    builder = TimelineBuilder()
    source = kineto_trace if name.startswith("kineto/") else nsys_export
    source.add(builder, SHARED / name)
    return builder.build({})


def whole(name: str) -> GpuActivity:
    """Return the activity of all GPUs of a recording."""
    found = find_whole_activity(read(name))
    assert found is not None
    return found


def reported(figures: GpuFigures) -> dict[str, Any]:
    """Return a GPU's figures as diagnosis.json has them."""
    (gpu,) = document(Diagnosis(verdict=failed(""), gpu_activity=(figures,)))["gpu"]
    return dict(gpu)


def about(expected: float) -> Any:
    """Return what equals a figure within the tolerance."""
    return pytest.approx(expected, rel=TOLERANCE, abs=DIGIT)


@pytest.fixture(scope="module", params=TRACES, ids=lambda name: Path(name).name.split(".")[0])
def name(request: pytest.FixtureRequest) -> str:
    """Each recording in turn, read once for all tests of it."""
    return str(request.param)


def test_counts_and_shares_are_those_that_were_measured(name: str) -> None:
    gpu, facts = whole(name), FACTS[name]["facts"]
    found = [gpu.count(category) for category in ("kernel", "copy", "memset")]
    assert found == [facts["kernels"], facts["memcpys"], facts["memsets"]]
    assert gpu.window_ns / MS == about(facts["gpu_window_ms"])
    assert gpu.busy_ns / MS == about(facts["gpu_busy_ms"])
    assert 100 * gpu.busy_share == about(facts["gpu_busy_pct_of_window"])
    if "kernel_only_busy_pct_of_window" in facts:
        assert 100 * gpu.kernels_busy_ns / gpu.window_ns == about(facts["kernel_only_busy_pct_of_window"])
    if "cuda_launch_calls" in facts:
        assert gpu.events.launches == facts["cuda_launch_calls"]


def test_the_busy_share_of_each_gpu_is_that_which_was_measured(name: str) -> None:
    measured = FACTS[name]["facts"].get("busy_pct_by_device", {})
    found = {
        gpu.device.removeprefix("gpu/"): 100 * gpu.busy_share
        for gpu in find_gpu_activity(Evidence(read(name)))
    }
    assert not measured or found == {device: about(share) for device, share in measured.items()}


def test_what_is_exposed_is_what_was_measured(name: str) -> None:
    gpu, facts = whole(name), FACTS[name]["facts"]
    collectives = facts.get("nccl", {})
    assert gpu.collective_ns / MS == about(collectives.get("busy_ms", collectives.get("union_ms", 0.0)))
    exposed = collectives.get("exposed_vs_other_kernels_ms", collectives.get("exposed_ms", 0.0))
    assert length(gpu.exposed_collectives) / MS == about(exposed)
    if "h2d_exposed_ms" in facts:
        assert length(gpu.exposed_h2d) / MS == about(facts["h2d_exposed_ms"])


def test_steps_and_their_periods_are_those_that_were_measured(name: str) -> None:
    gpu, facts = whole(name), FACTS[name]["facts"].get("steps")
    if facts is None:
        assert gpu.steps.table.height == 0
        return
    steps = gpu.steps.table
    assert steps.height == facts["n"]
    lengths = ((steps["end"] - steps["start"]) / MS).to_list()
    if "durations_ms" in facts:
        assert lengths == [about(duration) for duration in facts["durations_ms"]]
    else:
        periods = steps["period"].drop_nulls() / MS
        assert periods.median() == about(facts["median_period_ms"])
        assert periods.mean() == about(facts["mean_period_ms"])
        assert periods.max() == about(facts["max_period_ms"])
    share = facts.get(
        "gpu_busy_pct_first_to_last_step", FACTS[name]["facts"].get("gpu_busy_pct_first_to_last_step")
    )
    assert 100 * (gpu.steps.busy_share or 0.0) == about(share)


def test_idle_blames_and_busy_time_make_the_whole(name: str) -> None:
    for gpu in find_gpu_activity(Evidence(read(name))):
        assert sum(gpu.idle_shares.values()) + gpu.busy_share == pytest.approx(1)
        pieces = gpu.idle
        assert (pieces["start"][1:] >= pieces["end"][:-1]).all()


def test_the_critical_path_makes_the_window_and_holds_no_more_work_than_there_was(name: str) -> None:
    for gpu in find_gpu_activity(Evidence(read(name))):
        path = gpu.critical_path
        if path is None:
            continue
        besides = sum(path.parts.get(part, 0) for part in (HOST, LAUNCH, QUEUED))
        assert sum(path.parts.values()) == gpu.window_ns
        assert sum(path.host.values()) == path.parts.get(HOST, 0)
        assert gpu.window_ns - gpu.busy_ns <= besides


@pytest.mark.parametrize(
    ("part", "first", "most"),
    [
        ("unet3d_a100_baseline_2workers", "host", "between_steps"),
        ("vit_a100_4workers_tf32", "attention", None),
        ("unet3d_a100_dali_tf32", "conv", None),
        ("bert_small_h100", "host", "dispatch"),
        ("resnet18_mi300x_no_memory_pool", "host", "allocation"),
    ],
)
def test_the_critical_path_leads_where_the_source_says(part: str, first: str, most: str | None) -> None:
    (name,) = [name for name in TRACES if part in name]
    (gpu,) = find_gpu_activity(Evidence(read(name)))
    assert gpu.critical_path is not None
    assert next(iter(gpu.critical_path.parts)) == first
    assert most is None or next(iter(gpu.critical_path.host)) == most


def test_every_figure_of_a_gpu_is_in_the_document(name: str) -> None:
    facts = FACTS[name]["facts"]
    gpus = [reported(gpu_figures(gpu)) for gpu in find_gpu_activity(Evidence(read(name)))]
    assert gpus
    for gpu in gpus:
        assert gpu.keys() >= KEYS
        assert sum(gpu["idle"].values()) + gpu["busy_share"] == pytest.approx(1, abs=1e-4)
    for key, fact in (("kernels", "kernels"), ("copies", "memcpys"), ("memsets", "memsets")):
        assert sum(gpu[key] for gpu in gpus) == facts[fact]
    if len(gpus) > 1:
        return
    collectives = facts.get("nccl", {})
    assert gpus[0]["window_ns"] / MS == about(facts["gpu_window_ms"])
    assert 100 * gpus[0]["busy_share"] == about(facts["gpu_busy_pct_of_window"])
    assert gpus[0]["collective_ns"] / MS == about(
        collectives.get("busy_ms", collectives.get("union_ms", 0.0))
    )
    if "h2d_exposed_ms" in facts:
        assert gpus[0]["h2d_exposed_ns"] / MS == about(facts["h2d_exposed_ms"])
    if "cuda_launch_calls" in facts:
        assert gpus[0]["launches"] == facts["cuda_launch_calls"]


def diagnosed(part: str) -> Diagnosis:
    """Return the diagnosis of the recording whose name holds a word."""
    (name,) = [name for name in TRACES if part in name]
    return diagnose(read(name))


@pytest.mark.parametrize(
    ("part", "verdict", "rules"),
    [
        ("unet3d_a100_baseline_2workers", "data-bound", ["gpu_waits_for_data"]),
        ("unet3d_a100_16workers", "data-bound", ["gpu_waits_for_data", "exposed_transfer"]),
        ("unet3d_a100_dali_tf32", "compute-bound", ["compute_bound", "layout_conversions"]),
        ("unet3d_a100_dali_amp", "transfer-bound", ["exposed_transfer", "gpu_waits_for_data"]),
        (
            "unet3d_a100x4_ddp_baseline",
            "compute-bound",
            ["compute_bound", "layout_conversions", "dtype_casts"],
        ),
        ("vit_a100_4workers_tf32", "compute-bound", ["compute_bound", "exposed_transfer", "kernel_hotspot"]),
        ("vit_a100_dali_amp_bf16", "compute-bound", ["compute_bound", "kernel_hotspot"]),
        ("resnet50_v100_workers0_2021", "data-bound", ["gpu_waits_for_data", "tensor_cores_unused"]),
        ("resnet50_v100_workers0_2020", "launch-bound", ["gpu_waits_for_data"]),
        ("resnet_a100_ddp_rank0of2", "launch-bound", ["launch_bound", "exposed_communication"]),
        ("dlrm_a100_rank3of8", "communication-bound", ["exposed_communication"]),
        ("resnet18_mi300x_no_memory_pool", "memory-bound", ["allocator_retries"]),
        ("bert_small_h100", "launch-bound", ["launch_bound"]),
        ("timesformer_h100", "compute-bound", ["compute_bound", "slow_attention", "misaligned_shapes"]),
    ],
)
def test_the_conclusion_is_that_of_the_source(part: str, verdict: str, rules: list[str]) -> None:
    diagnosis = diagnosed(part)
    assert diagnosis.verdict.id == verdict
    assert {finding.rule for finding in diagnosis.findings} >= set(rules)


@pytest.mark.parametrize(
    "part", ["SYNTHETIC_healthy", "tiny_rtx3080", "ddp_baseline", "unet3d_a100_dali_tf32"]
)
def test_communication_that_is_hidden_or_not_there_is_not_reported(part: str) -> None:
    assert "exposed_communication" not in [finding.rule for finding in diagnosed(part).findings]


@pytest.mark.parametrize(
    ("part", "share", "pattern"),
    [
        ("timesformer_h100", 0.4293, "slow_attention"),
        ("unet3d_a100_dali_tf32", 0.1048, "layout_conversions"),
        ("unet3d_a100x4_ddp_baseline", 0.1810, "layout_conversions"),
    ],
)
def test_the_share_is_at_least_that_of_the_kernels_counted_by_name(
    part: str, share: float, pattern: str
) -> None:
    (finding,) = [finding for finding in diagnosed(part).findings if finding.rule == pattern]
    assert finding.share >= share - 0.001


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        ("SYNTHETIC_healthy", {"compute_bound"}),
        ("tiny_rtx3080", set()),
        ("bert_small_h100", {"launch_bound"}),
        ("resnet_v100_ns_resolution", {"tensor_cores_unused", "compute_bound"}),
    ],
)
def test_no_more_is_found_than_there_is(part: str, rules: set[str]) -> None:
    assert {finding.rule for finding in diagnosed(part).findings} == rules


@pytest.mark.parametrize(
    ("part", "flops", "mfu"),
    [
        # ResNet-50 at 224 x 224: 8.18 GFLOP per image forward, three times that with backward; 32 images, 6 steps.
        ("resnet50_v100_workers4_2021", 8.18e9 * 3 * 32 * 6, 0.374),
        ("resnet50_v100_workers0_2021", 8.18e9 * 3 * 32 * 6, 0.301),
        ("timesformer_h100", 8.95e12, 0.0565),
    ],
)
def test_flops_are_those_of_the_model_and_mfu_is_theirs(part: str, flops: float, mfu: float) -> None:
    (gpu,) = diagnosed(part).gpu_activity
    assert gpu.flops == pytest.approx(flops, rel=0.01)
    assert gpu.mfu == pytest.approx(mfu, rel=0.01)


def test_where_few_flops_could_be_counted_no_mfu_is_reported() -> None:
    (gpu,) = diagnosed("moe_serving_b200").gpu_activity
    assert gpu.mfu is None
    assert "only 11 %" in gpu.why_no_mfu


def test_one_report_in_three_exports_gives_one_result() -> None:
    found = [diagnose(read(name)).gpu_activity for name in TRACES if "ddp_nobroadcast" in name]
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
