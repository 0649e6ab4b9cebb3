"""Advice names only what a run does not use yet, and what its device can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from perfwrap.journal_format import PINNED, TO_GPU
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules import levers
from perfwrap.rules.data_loading import gpu_waits_for_data
from perfwrap.rules.health import memory_pressure, out_of_memory, skipped_steps
from perfwrap.rules.kernels import (
    dtype_casts,
    kernel_hotspot,
    layout_conversions,
    slow_attention,
    tensor_cores_unused,
    unfused_elementwise,
)
from perfwrap.rules.model import Finding, Rule
from perfwrap.rules.run import compute_bound
from perfwrap.rules.transfers import exposed_transfer, launch_bound

A100 = "NVIDIA A100-SXM4-40GB"
AMX, AVX2 = "amx_bf16 avx2 avx512f", "avx2"
GEMM, PLAIN = "ampere_bf16_s16816gemm_bf16_128x128", "cutlass_simt_sgemm_128x64"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
CAST = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(x)>"
WARP_SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>"
SOFTMAX = "void cunn_SoftMaxForward<8, float, float>"
HALF = {"model/Net/dtypes": "torch.float32 100", "model/Net/autocast": "cuda torch.bfloat16"}


def all_advice(finding: Finding) -> str:
    """Return the advice of all options."""
    return " ".join(option.advice for option in finding.options)


def experiments(finding: Finding) -> set[str]:
    """Return the experiments of all options."""
    return {option.experiment for option in finding.options if option.experiment}


def find_in(run: Any) -> levers.Levers:
    evidence = Evidence(run.read())
    return levers.find_levers(evidence, evidence.get(find_main_trainer))


def write(
    loop: Any,
    features: str | None = AMX,
    device: str = "cpu",
    ms: dict[str, float] | None = None,
    **facts: str,
) -> None:
    """Write a loop of a model's work alone, with facts about the model."""
    known = {"device": device, "dtypes": "torch.float32 1200", "autocast": "off", **facts}
    for key, value in known.items():
        loop.journal.fact(f"model/Net/{key}", value)
    if features is not None:
        loop.monitor().fact("cpu_features", features)
    for _ in range(40):
        loop.compute(**(ms or {}))


@pytest.mark.parametrize(
    ("features", "facts", "precision", "experiment"),
    [
        (AMX, {}, "bfloat16 autocast", "three-run"),
        ("asimdhp bf16", {}, "bfloat16 autocast", "three-run"),
        (AVX2, {}, "", "compile"),
        ("none seen", {}, "", "compile"),
        (None, {}, "", "compile"),
        (AMX, {"device": "mps:0"}, "", "compile"),
        (AMX, {"device": "openreg:0"}, "", "compile"),
        (AMX, {"autocast": "cpu torch.bfloat16"}, "", "compile"),
        (AMX, {"dtypes": "torch.bfloat16 1200, torch.float32 3"}, "", "compile"),
        (AMX, {"dtypes": "torch.bfloat16 3, torch.float32 1200"}, "bfloat16 autocast", "three-run"),
    ],
)
def test_16_bits_are_advised_on_a_cpu_with_instructions_that_does_not_use_them(
    loop: Any, run: Any, features: str | None, facts: dict[str, str], precision: str, experiment: str
) -> None:
    write(loop, features, **facts)
    found = find_in(run)
    first = found.options[0]
    assert (found.precision, first.experiment) == (precision, experiment)
    assert ("bfloat16" in first.edit) is bool(precision)


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        (A100, "bfloat16 autocast"),
        ("Tesla V100-SXM2-16GB", "float16 autocast with a GradScaler"),
        ("Tesla P100-PCIE-16GB", ""),
    ],
)
def test_a_gpu_is_advised_the_type_that_it_is_fast_in(
    loop: Any, run: Any, device: str, precision: str
) -> None:
    loop.journal.fact("cuda_device_name", device)
    write(loop, device="cuda:0")
    assert find_in(run).precision == precision


def test_what_compiles_before_the_loop_or_in_another_thread_is_compiled(loop: Any, run: Any) -> None:
    loop.span("compile", 300, "compile", line=9)
    write(loop)
    found = find_in(run)
    assert found.is_compiled
    assert not any("torch.compile" in option.edit for option in found.options)
    assert found.options[0].experiment == "bf16"
    assert "CUDA graphs" in found.fewer_launches


def test_compiled_with_16_bits_nothing_remains_to_be_tried(
    loop: Any, run: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.span("compile", 300, "compile", line=9)
    loop.span("compile", 30, "record CUDA graph", line=9)
    write(loop, autocast="cpu torch.bfloat16")
    finding = find(compute_bound)
    assert [option.edit for option in finding.options] == ["Use a larger batch.", "Use a faster device."]
    assert find_in(run).fewer_launches == ""


def test_a_model_that_uses_nothing_is_advised_everything(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    finding = find(compute_bound)
    assert [option.edit for option in finding.options] == [
        "Use bfloat16 autocast.",
        "Use torch.compile.",
        "Use a larger batch.",
        "Use a faster device.",
    ]
    assert finding.experiment == "three-run"


def with_tried(run: Any, **tried: list[Any]) -> Evidence:
    """Return the evidence of a run beside a trial with these results."""
    timeline = run.read()
    return Evidence(replace(timeline, run={**timeline.run, "tried": tried}))


def test_what_was_measured_comes_first_and_what_gained_nothing_is_left_out(loop: Any, run: Any) -> None:
    write(loop)
    evidence = with_tried(run, bf16=[1.02, 0.97, 1.08], compile=[0.8, 0.78, 0.83])
    first, *others = levers.find_levers(evidence, evidence.get(find_main_trainer)).options
    assert (first.edit, first.saving) == ("Use torch.compile.", (0.78, 0.83))
    assert first.basis == "measured by `perfwrap try`"
    assert [option.edit for option in others] == ["Use a larger batch.", "Use a faster device."]


def test_a_result_that_the_noise_hides_changes_nothing(loop: Any, run: Any) -> None:
    write(loop)
    evidence = with_tried(run, bf16=[0.55, 0.19, 1.44])
    first = levers.find_levers(evidence, evidence.get(find_main_trainer)).options[0]
    assert (first.edit, first.saving, first.experiment) == ("Use bfloat16 autocast.", (1.0, 1.0), "three-run")


def test_the_best_of_a_trial_is_the_headline(loop: Any, run: Any) -> None:
    write(loop)
    evidence = with_tried(run, bf16=[0.7, 0.68, 0.72], **{"bf16+compile": [0.5, 0.48, 0.53]})
    (finding,) = compute_bound.check(evidence, evidence.get(find_main_trainer), compute_bound.Limits())
    assert finding.advice == "Use bfloat16 autocast and torch.compile together."
    assert finding.saving == (0.48, 0.53)
    assert finding.options[1].experiment == "bf16"


@pytest.mark.parametrize(
    "values", [["fast", 0.5, 0.6], [0.5], None, [0.9, 1.2, 0.1], [float("nan"), 0.5, 0.6]]
)
def test_results_that_are_damaged_are_left_out(loop: Any, run: Any, values: Any) -> None:
    write(loop)
    evidence = with_tried(run, compile=values)
    options = levers.find_levers(evidence, evidence.get(find_main_trainer)).options
    assert all(option.saving == (1.0, 1.0) for option in options)
    assert "Use torch.compile." in [option.edit for option in options]


@pytest.mark.parametrize(
    ("kind", "fused", "is_fused"),
    [
        ("torch.optim.adam.Adam", "True", True),
        ("torch.optim.adam.Adam", None, False),
        ("apex.optimizers.fused_adam.FusedAdam", None, True),
        ("apex.optimizers.fused_adam.Adam", None, False),
    ],
)
def test_a_fused_optimizer_of_another_package_is_fused(
    loop: Any, run: Any, kind: str, fused: str | None, is_fused: bool
) -> None:
    loop.journal.fact("optimizer/SGD#1/class", kind)
    if fused is not None:
        loop.journal.fact("optimizer/SGD#1/fused", fused)
    write(loop)
    assert find_in(run).is_fused is is_fused


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("rule", [memory_pressure, out_of_memory])
def test_checkpointing_that_is_on_is_not_advised(
    loop: Any, find: Callable[[Rule], Finding], rule: Rule, is_on: bool
) -> None:
    write(loop, device="cuda:0")
    if is_on:
        with loop.journal.inside("backward"):
            loop.span("recompute", 1, "checkpoint", line=11)
        loop.compute()
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 << 30)
    loop.sample("gpu/0", "memory_used_bytes", 79 << 30)
    sizes = "\x1f".join(str(size << 30) for size in (2, 80, 0, 76, 77))
    detail = f"0\x1f{sizes}\x1ftrain.py\x1f21\x1fmain"
    loop.journal.describe("MARK", "out_of_memory", loop.journal.text(detail))
    advice = all_advice(find(rule))
    assert ("activation checkpointing" not in advice) is is_on
    assert ("checkpointing of more layers" in advice) is is_on


def on_gpu(gpu_loop: Any, facts: dict[str, str], *kernels: tuple[str, float]) -> None:
    gpu_loop.sequence(*kernels, times=40)
    gpu_loop.recording.device_fact("name", A100)
    for key, value in facts.items():
        gpu_loop.recording.fact(key, value)


@pytest.mark.parametrize(
    ("rule", "kernels", "facts", "advised", "experiment", "left"),
    [
        (
            tensor_cores_unused,
            ((PLAIN, 90), ("x", 10)),
            {"float32_matmul_precision": "high"},
            "set_float32_matmul_precision",
            {"tf32", "bf16"},
            {"bf16"},
        ),
        (tensor_cores_unused, ((PLAIN, 90), ("x", 10)), HALF, "Use torch", {"tf32", "bf16"}, {"tf32"}),
        (
            kernel_hotspot,
            ((SOFTMAX, 50), (GEMM, 20), ("x", 30)),
            HALF,
            "16-bit",
            {"compile", "bf16"},
            {"compile"},
        ),
        (dtype_casts, ((CAST, 20), (GEMM, 80)), HALF, "", {"bf16", "compile"}, {"compile"}),
        (
            slow_attention,
            ((GEMM, 20), (ADD, 10), (WARP_SOFTMAX, 30), (GEMM, 20), ("layer_norm_kernel", 10), (GEMM, 10)),
            HALF,
            "with 16-bit types",
            set(),
            set(),
        ),
        (
            layout_conversions,
            (("void cudnn::ops::nchwToNhwcKernel<__half, __half>", 20), (GEMM, 80)),
            {"model/Net/channels_last": "20 of 20"},
            "model.to(",
            {"channels-last"},
            set(),
        ),
    ],
    ids=["tf32", "autocast", "bytes", "casts", "attention", "layout"],
)
def test_a_setting_that_is_on_is_not_advised(
    make_recording: Callable[..., Any],
    gpu_loop: Any,
    rule: Rule,
    kernels: tuple[tuple[str, float], ...],
    facts: dict[str, str],
    advised: str,
    experiment: set[str],
    left: set[str],
) -> None:
    on_gpu(gpu_loop, {}, *kernels)
    before = gpu_loop.find(rule)
    other = type(gpu_loop)(make_recording())
    on_gpu(other, facts, *kernels)
    after = other.find(rule)
    assert (experiments(before), experiments(after)) == (experiment, left)
    assert advised in all_advice(before)
    assert not advised or advised not in all_advice(after)
    assert after.share == before.share


@pytest.mark.parametrize(
    ("rule", "kernels"),
    [
        (unfused_elementwise, ((ADD, 20), (ADD, 20), (GEMM, 60))),
        (dtype_casts, ((CAST, 20), (GEMM, 80))),
        (kernel_hotspot, ((SOFTMAX, 50), (GEMM, 20), ("x", 30))),
    ],
    ids=["unfused", "casts", "hotspot"],
)
def test_where_kernels_of_inductor_run_compiling_is_not_advised(
    make_recording: Callable[..., Any], gpu_loop: Any, rule: Rule, kernels: tuple[tuple[str, float], ...]
) -> None:
    on_gpu(gpu_loop, {}, *kernels)
    before = gpu_loop.find(rule)
    assert "torch.compile" in all_advice(before)
    assert "compile" in experiments(before)
    other = type(gpu_loop)(make_recording())
    on_gpu(other, {}, *kernels, ("triton_per_fused_native_layer_norm_7", 1))
    after = other.find(rule)
    assert not any(
        each in all_advice(after) for each in ("Use torch.compile", "Call torch.compile", ": torch.compile")
    )
    assert "compile" not in experiments(after)


def test_a_compiled_loop_that_waits_for_launches_is_advised_graphs(gpu_loop: Any) -> None:
    for _ in range(20):
        gpu_loop.step(kernel=40, name="triton_poi_fused_add_3")
    finding = gpu_loop.find(launch_bound)
    assert finding.advice.startswith('Compile with mode="reduce-overhead"')
    assert finding.experiment is None


def write_loader(gpu_loop: Any, at_work: str, **settings: str) -> None:
    """Write steps that begin with a wait for a batch, or are full of them, and end with a copy."""
    for key, value in settings.items():
        gpu_loop.recording.fact(f"loader/1/{key}", value)
    for _ in range(20):
        start = gpu_loop.start
        for at in range(0, 900, 100) if at_work == "data" else (0,):
            gpu_loop.recording.host(start + at + 10, 84, "data", "data", "loader/1")
        gpu_loop.step(kernel=40)
        gpu_loop.recording.copy(start + 1_010, 400, launched=start + 990, value=2**20)
        gpu_loop.start += 500


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_loader_that_pins_is_not_advised_to(gpu_loop: Any, is_pinned: bool) -> None:
    write_loader(gpu_loop, "op", pin_memory=str(is_pinned))
    finding = gpu_loop.find(exposed_transfer)
    assert ("pin_memory" not in all_advice(finding)) is is_pinned
    assert finding.experiment == (None if is_pinned else "pin-memory")


@pytest.mark.parametrize("is_pinned", [True, False])
def test_copies_from_memory_that_is_pinned_already_are_not_advised_pinning(
    gpu_loop: Any, is_pinned: bool
) -> None:
    write_loader(gpu_loop, "op")
    for step in range(20):
        flags = TO_GPU | (PINNED if is_pinned else 0)
        gpu_loop.recording.host(1_500 * step + 980, 5, "transfer", "transfer", "Tensor.to", value=flags)
    assert ("pin_memory" not in all_advice(gpu_loop.find(exposed_transfer))) is is_pinned


@pytest.mark.parametrize(
    ("device", "autocast", "advised", "not_advised"),
    [
        (A100, "cuda torch.float16", "Use bfloat16", "Remove the scaler"),
        ("Tesla T4", "cuda torch.float16", "Clip", "bfloat16"),
        (A100, "cuda torch.bfloat16", "Remove the scaler", "Use bfloat16"),
    ],
)
def test_a_scaler_that_skips_is_advised_by_the_type_in_use(
    loop: Any, find: Callable[[Rule], Finding], device: str, autocast: str, advised: str, not_advised: str
) -> None:
    loop.journal.fact("cuda_device_name", device)
    loop.journal.fact("model/Net/device", "cuda:0")
    loop.journal.fact("model/Net/dtypes", "torch.float32 1200")
    loop.journal.fact("model/Net/autocast", autocast)
    for step in range(60):
        loop.compute(optimizer=0)
        skipped = step % 5 == 4
        with loop.journal.inside(
            "scaler_step", f"GradScaler.step{' skipped' * skipped}", int(skipped), "train.py:25:main"
        ):
            loop.python(1)
    advice = all_advice(find(skipped_steps))
    assert advised in advice
    assert not_advised not in advice


@pytest.mark.parametrize(
    ("torch", "python", "can_compile"),
    [
        ("1.13.1", "3.10.4", False),
        ("2.3.1", "3.11.2", True),
        ("2.3.1", "3.12.1", False),
        ("2.5.1", "3.13.0", False),
        ("2.6.0+cu124", "3.13.0", True),
        ("unknown", "3.13.0", True),
    ],
)
def test_compiling_is_advised_only_where_torch_can(
    loop: Any, run: Any, torch: str, python: str, can_compile: bool
) -> None:
    loop.journal.fact("torch", torch)
    loop.journal.fact("python", python)
    write(loop, AVX2)
    found = find_in(run)
    assert ("Use torch.compile." in [option.edit for option in found.options]) is can_compile
    assert ("torch.compile" in found.fewer_launches) is can_compile


@pytest.mark.parametrize(("size", "grows"), [(32, True), (64, False), (100, False)])
def test_a_larger_batch_is_advised_only_where_there_are_more_samples(
    loop: Any, run: Any, size: int, grows: bool
) -> None:
    loop.loader(batch_size=size, dataset_len=64)
    for _ in range(40):
        loop.batch(0.1)
        loop.compute()
    assert ("Use a larger batch." in [option.edit for option in find_in(run).options]) is grows


@pytest.mark.parametrize(("peak", "grows"), [(20, True), (78, False)])
def test_a_larger_batch_is_not_advised_where_gpu_memory_is_full(
    loop: Any, run: Any, peak: int, grows: bool
) -> None:
    loop.journal.fact("cuda_device", "0")
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 << 30)
    write(loop, device="cuda:0")
    for _ in range(20):
        loop.journal.sample("gpu/0", "allocated_bytes", peak << 29)
        loop.journal.sample("gpu/0", "peak_allocated_bytes", peak << 30)
    assert ("Use a larger batch." in [option.edit for option in find_in(run).options]) is grows


@pytest.mark.parametrize(("device", "advised"), [(A100, True), ("Tesla T4", False)])
def test_bfloat16_against_full_memory_is_advised_only_where_the_device_has_it(
    loop: Any, find: Callable[[Rule], Finding], device: str, advised: bool
) -> None:
    loop.journal.fact("cuda_device_name", device)
    write(loop, device="cuda:0")
    sizes = "\x1f".join(str(size << 30) for size in (2, 80, 0, 76, 77))
    loop.journal.describe(
        "MARK", "out_of_memory", loop.journal.text(f"0\x1f{sizes}\x1ftrain.py\x1f21\x1fmain")
    )
    assert ("bfloat16" in all_advice(find(out_of_memory))) is advised


def test_a_loop_of_launches_that_is_fused_compiled_and_full_is_left_with_its_operations(
    gpu_loop: Any,
) -> None:
    gpu_loop.recording.fact("loader/1/batch_size", "64")
    gpu_loop.recording.fact("loader/1/dataset_len", "64")
    for _ in range(20):
        gpu_loop.recording.host(gpu_loop.start + 1, 2, "data", "data", "loader/1")
        gpu_loop.step(kernel=40)
    edits = [option.edit for option in gpu_loop.find(launch_bound).options]
    assert not any("larger batch" in edit for edit in edits)
    assert any("reduce-overhead" in edit for edit in edits)


@pytest.mark.parametrize(
    ("epochs", "persistent", "named"), [(1, "False", False), (20, "False", True), (20, "True", False)]
)
def test_workers_that_start_once_are_not_advised_to_persist(
    gpu_loop: Any, epochs: int, persistent: str, named: bool
) -> None:
    gpu_loop.recording.fact("loader/1/persistent_workers", persistent)
    for step in range(20):
        start = gpu_loop.start
        if step % (20 // epochs) == 0:
            gpu_loop.recording.host(start + 1, 5, "loader_start", "loader_start", "loader/1")
        for at in range(0, 900, 100):
            gpu_loop.recording.host(start + at + 10, 84, "data", "data", "loader/1")
        gpu_loop.step(kernel=40)
        gpu_loop.recording.copy(start + 1_010, 400, launched=start + 990, value=2**20)
        gpu_loop.start += 500
    assert ("persistent_workers" in all_advice(gpu_loop.find(gpu_waits_for_data))) is named


def test_a_daemon_on_a_gpu_is_advised_cheaper_batches_only(gpu_loop: Any) -> None:
    write_loader(gpu_loop, "data", daemon="True")
    (option,) = gpu_loop.find(gpu_waits_for_data).options
    assert option.edit.startswith("Make batches cheaper")


def write_cores(loop: Any, busy: float, per_core: int, threads: int, backward: float = 20) -> None:
    """Write a loop of a model's work alone on a host with eight usable cores."""
    write(loop, features=AVX2, ms={"backward": backward})
    loop.journal.fact("threads", threads)
    monitor = loop.monitor()
    monitor.fact("cores_usable", 8)
    monitor.fact("cpu_threads_per_core", per_core)
    for second in range(5):
        monitor.sample("host", "cpu_cores_busy", busy, second)


@pytest.mark.parametrize(
    ("busy", "per_core", "threads", "expected"),
    [(1.2, 1, 1, 8), (1.2, 2, 1, 4), (1.2, 2, 4, 0), (1.2, 1, 5, 0), (6.0, 1, 1, 0)],
)
def test_more_threads_are_a_lever_where_cores_are_idle(
    loop: Any, find: Callable[[Rule], Finding], busy: float, per_core: int, threads: int, expected: int
) -> None:
    write_cores(loop, busy, per_core, threads)
    finding = find(compute_bound)
    found = [one for one in finding.options if (one.experiment or "").startswith("threads=")]
    assert [one.experiment for one in found] == [f"threads={expected}"] * bool(expected)
    assert all(one.saving == (1.0, 1.0) for one in found)


def test_short_steps_have_too_little_work_for_more_threads(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write_cores(loop, busy=1.2, per_core=1, threads=1, backward=4)
    assert not any((one.experiment or "").startswith("threads=") for one in find(compute_bound).options)
