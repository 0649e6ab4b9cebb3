"""Traces of torch.profiler become the same timeline that a run of perfwrap's own does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.rules.needs import why_missing
from perfwrap.sources.kineto import kineto_trace
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import host_clock
from perfwrap.timeline.model import Timeline

from tests.wrapper.sources.traces import SAMPLE, SHARED, lasting, launched, read, written

FACTS = SHARED / "facts.json"
TRACES = sorted((SHARED / "kineto").glob("*.json*")) if FACTS.exists() else []
TOLERANCE = 0.005
"""Of every figure that the shared facts hold."""

needs_shared = pytest.mark.skipif(not TRACES, reason="the shared traces are not on this machine")


def total_ms(timeline: Timeline, category: str) -> float:
    """Return how long all spans of a category last together."""
    return float(timeline.spans.filter(pl.col("category") == category)["duration"].sum()) / 1e6


def count(timeline: Timeline, category: str) -> int:
    """Return how many spans a category has."""
    return timeline.spans.filter(pl.col("category") == category).height


@needs_shared
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_real_traces_have_the_counts_times_and_steps_that_others_measured(path: Path) -> None:
    facts = json.loads(FACTS.read_text())[f"kineto/{path.name}"]["facts"]
    timeline = read(path)
    for category, key in (("kernel", "kernels"), ("copy", "memcpys"), ("memset", "memsets")):
        assert count(timeline, category) == facts.get(key, 0)
    assert total_ms(timeline, "kernel") == pytest.approx(facts.get("kernel_time_ms", 0), rel=TOLERANCE)
    work = timeline.spans.filter(pl.col("category").is_in(["kernel", "copy", "memset"]))
    if work.height:
        window = (work["start"] + work["duration"]).max() - work["start"].min()  # type: ignore[operator]
        assert window / 1e6 == pytest.approx(facts["gpu_window_ms"], rel=TOLERANCE)
    steps = timeline.spans.filter(pl.col("operation") == "step")["duration"] / 1e6
    assert steps.to_list() == pytest.approx(facts.get("steps", {}).get("durations_ms", []), abs=0.006)
    data = timeline.spans.filter(pl.col("operation") == "data")
    for _, calls, milliseconds in facts.get("dataloader_ms", []):
        assert data.height == calls
        assert data["duration"].sum() / 1e6 == pytest.approx(milliseconds, rel=TOLERANCE)
    assert timeline.warnings == ()


@needs_shared
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_kernel_is_joined_to_the_call_that_launched_it(path: Path) -> None:
    spans = read(path).spans
    kernels = spans.filter(pl.col("category") == "kernel")
    calls = spans.filter(pl.col("operation").str.contains("Launch"))
    known = kernels["link"].is_in(calls["link"].implode()).sum()
    # The oldest trace begins with kernels that were launched before it.
    assert known >= 0.92 * kernels.height


@needs_shared
def test_steps_of_a_real_trace_come_from_the_profilers_marks_and_their_periods_agree() -> None:
    path = SHARED / "kineto/resnet50_v100_workers4_2021-06.json.gz"
    evidence = Evidence(read(path))
    (trainer,) = evidence.get(find_trainers)
    steps = evidence.get(find_steps, trainer)
    assert steps.anchor == "step mark (ProfilerStep)"
    marked = json.loads(FACTS.read_text())[f"kineto/{path.name}"]["facts"]["steps"]["durations_ms"]
    assert (steps.table["duration"] / 1e6).to_list() == pytest.approx(marked, rel=TOLERANCE)


@needs_shared
def test_a_last_mark_that_the_end_of_the_recording_cut_off_is_no_step() -> None:
    evidence = Evidence(read(SHARED / "kineto/toy_train_mi250_rocm62.json.gz"))
    (trainer,) = evidence.get(find_trainers)
    assert evidence.get(find_steps, trainer).count == 1


@needs_shared
def test_ranks_of_one_job_are_trainers_beside_each_other() -> None:
    evidence = Evidence(read(*(SHARED / f"kineto/dlrm_sampled_rank{rank}of128.json.gz" for rank in (0, 1))))
    assert [(trainer.name, trainer.rank) for trainer in evidence.get(find_trainers)] == [
        ("rank 0", 0),
        ("rank 1", 1),
    ]
    kernels = evidence.timeline.spans.filter(pl.col("category") == "kernel")
    assert kernels.height == 1154 + 1104


def test_a_trace_recorded_on_the_cpu_shows_the_steps_and_all_their_phases() -> None:
    timeline = read(SAMPLE)
    evidence = Evidence(timeline)
    (trainer,) = evidence.get(find_trainers)
    steps = evidence.get(find_steps, trainer)
    assert (steps.count, steps.anchor) == (4, "step mark (ProfilerStep)")
    spans = timeline.spans.filter(pl.col("track") == trainer.thread)
    counted = dict(spans.group_by("operation").len().iter_rows())
    expected = {"step": 4, "data": 4, "zero_grad": 4, "optimizer": 4, "sync": 4}
    assert {operation: counted[operation] for operation in expected} == expected
    shares = evidence.get(find_account, trainer).shares
    assert all(shares[part] > 0 for part in ("data", "forward", "backward", "optimizer", "sync"))
    assert shares["python"] < 0.5
    forward = spans.filter(pl.col("operation") == "forward")
    assert set(forward["name"]) == {"Sequential_0", "CrossEntropyLoss_0"}
    assert set(forward["function"]) == {"train"}


def test_packed_and_plain_traces_give_the_same_timeline(tmp_path: Path) -> None:
    plain = tmp_path / SAMPLE.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    one, other = read(SAMPLE), read(plain)
    assert one.spans.equals(other.spans)
    assert one.tracks.equals(other.tracks)


@pytest.mark.parametrize("time", ["1712195495519689.123", "1712195495519689", "1.712195495519689e15"])
def test_times_are_whole_nanoseconds_also_where_a_float_could_not_hold_them(
    tmp_path: Path, time: str
) -> None:
    path = tmp_path / "t.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 0.001, "ts": '
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + event + time + "}]}")
    (span,) = read(path).spans.to_dicts()
    assert (span["start"], span["duration"]) == (1712195495519689000 + (123 if "." in time[2:] else 0), 1)


def test_times_count_from_the_base_that_is_after_the_events(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 5.25, "dur": 1}],'
        '"baseTimeNanoseconds": 1700000000000000000}'
    )
    assert read(path).spans["start"].to_list() == [1700000000000005250]


def test_in_a_run_of_ones_own_times_are_monotonic_and_the_recorders_words_are_left_to_it(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "t.json", [lasting("cpu_op", "aten::item", 1_000_000, 2)])
    builder = TimelineBuilder()
    own = builder.process("h", 7, "x")
    thread = builder.thread(own, 1, "main", 7)
    kineto_trace.add(builder, path, host_clock([(5, 1_000_000_005)]), "h")
    timeline = builder.build({})
    assert timeline.spans.select("start", "operation", "track").rows() == [(0, "op", thread)]


def test_copies_have_their_direction_and_bytes(tmp_path: Path) -> None:
    names = {
        "Memcpy HtoD (Pageable -> Device)": "h2d",
        "Memcpy DtoH (Device -> Pinned)": "d2h",
        "Memcpy DtoD (Device -> Device)": "d2d",
        "Memcpy PtoP (Device -> Device)": "p2p",
        "CopyHostToDevice": "h2d",
        "Memcpy": "copy",
    }
    events = [
        lasting("gpu_memcpy", name, 10 * at, 5, 7, device=1, stream=7, correlation=at, bytes=at)
        for at, name in enumerate(names, start=1)
    ]
    timeline = read(written(tmp_path / "t.json", events))
    copies = timeline.spans.filter(pl.col("category") == "copy")
    assert copies["operation"].to_list() == list(names.values())
    assert copies["value"].to_list() == list(range(1, len(names) + 1))
    assert timeline.tracks.filter(pl.col("kind") == "stream")["name"].to_list() == ["gpu/1 stream 7"]


@pytest.mark.parametrize(
    ("call", "kernel"),
    [("cudaLaunchKernel", "kernel"), ("hipLaunchKernel", "kernel"), ("cuLaunchKernelEx", "Kernel")],
)
def test_a_kernel_and_its_call_share_a_link_whatever_the_maker(
    tmp_path: Path, call: str, kernel: str
) -> None:
    runtime = "Runtime" if kernel == "Kernel" else "cuda_driver" if call.startswith("cu") else "cuda_runtime"
    events = [lasting(runtime, call, 1, 2, "7", correlation=9), launched("gemm", 5, 3, 9) | {"cat": kernel}]
    spans = read(written(tmp_path / "t.json", events)).spans
    assert spans["link"].n_unique() == 1
    assert spans["operation"].to_list() == [call, "kernel"]
    assert spans["category"].to_list() == ["other", "kernel"]


def test_two_processes_number_their_calls_apart(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / f"r{rank}.json", [launched("gemm", 5, 3, 9)], distributedInfo={"rank": rank})
        for rank in range(2)
    ]
    assert read(*paths).spans["link"].n_unique() == 2


def training(copies: bool = True) -> list[dict[str, object]]:
    """Return two steps without Python and without marks, the backward pass on autograd's own thread."""
    events: list[dict[str, object]] = []
    for step in range(2):
        at = 1000 * step
        events += [
            lasting("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 100),
            lasting("cpu_op", "aten::to", at + 110, 40),
            lasting("cuda_runtime", "cudaMemcpyAsync", at + 115, 10, correlation=100 + at),
            lasting("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 120, 9, 7, device=0, stream=7,
                    correlation=100 + at, bytes=4096),
            lasting("cuda_runtime", "cudaStreamSynchronize", at + 126, 20, correlation=101 + at),
            lasting("cpu_op", "aten::linear", at + 200, 100),
            lasting("cpu_op", "aten::mm", at + 210, 50),
            lasting("cpu_op", "aten::mse_loss", at + 310, 40),
            lasting("user_annotation", "Optimizer.zero_grad#SGD.zero_grad", at + 360, 20),
            lasting("cpu_op", "autograd::engine::evaluate_function: MseLossBackward0", at + 400, 80, 8),
            lasting("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at + 490, 110, 8),
            lasting("user_annotation", "Optimizer.step#SGD.step", at + 620, 60),
            lasting("cpu_op", "aten::item", at + 700, 200),
            lasting("cpu_op", "aten::_local_scalar_dense", at + 705, 190),
            lasting("cuda_runtime", "cudaStreamSynchronize", at + 720, 170, correlation=102 + at),
        ]  # fmt: skip
    return events


def test_operations_are_distinguished_from_functions_and_calls_where_no_python_was_recorded(
    tmp_path: Path,
) -> None:
    timeline = read(written(tmp_path / "t.json", training()))
    (trainer,) = Evidence(timeline).get(find_trainers)
    reported = ("data", "transfer", "forward", "zero_grad", "backward", "optimizer", "sync")
    spans = timeline.spans.filter(pl.col("operation").is_in(reported))
    assert set(spans["track"]) == {trainer.thread}
    first = [
        (row["operation"], row["start"] // 1000, row["duration"] // 1000) for row in spans.to_dicts()[:7]
    ]
    assert first == [
        ("data", 0, 100),
        ("transfer", 110, 40),
        ("forward", 200, 150),
        ("zero_grad", 360, 20),
        ("backward", 400, 200),
        ("optimizer", 620, 60),
        ("sync", 700, 200),
    ]
    assert spans.height == 2 * len(reported)
    transfer = spans.filter(pl.col("operation") == "transfer").row(0, named=True)
    assert (transfer["value"] >> 8, transfer["value"] & 15) == (4096, 1)


def test_functions_and_calls_hide_no_time_of_the_phase_that_they_are_part_of(tmp_path: Path) -> None:
    evidence = Evidence(read(written(tmp_path / "t.json", training())))
    (trainer,) = evidence.get(find_trainers)
    ns = evidence.get(find_account, trainer).ns
    assert (ns["forward"], ns["backward"], ns["sync"]) == (300_000, 400_000, 400_000)


def test_a_trace_says_its_rank_its_devices_and_its_settings_but_nothing_of_the_environment(
    tmp_path: Path,
) -> None:
    header = {
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "deviceProperties": [{"id": 0, "name": "H100", "totalGlobalMem": 80}, {"id": 1, "name": "other"}],
        "with_stack": 1,
        "environment": {"TOKEN": "secret"},
    }
    timeline = read(written(tmp_path / "t.json", [launched("k", 1, 1, 1)], **header))
    facts = dict(timeline.facts.select("key", "value").iter_rows())
    assert (facts["rank"], facts["world_size"], facts["backend"], facts["trace/with_stack"]) == (
        "3",
        "8",
        "nccl",
        "1",
    )
    assert (facts["name"], facts["memory_total_bytes"]) == ("H100", "80")
    assert "secret" not in str(timeline.facts.to_dicts())
    assert timeline.tracks.filter(pl.col("kind") == "process")["rank"].to_list() == [3]


def test_functions_of_libraries_are_left_out_and_the_programs_own_keep_their_place(tmp_path: Path) -> None:
    names = [
        "train.py(12): step",
        "torch/nn/functional.py(3): relu",
        "<built-in method mm>",
        "threading.py(1): run",
    ]
    events = [lasting("python_function", name, 10 * at, 5) for at, name in enumerate(names)]
    spans = read(written(tmp_path / "t.json", events)).spans
    assert spans.select("operation", "file", "line", "function").rows() == [
        ("python", "train.py", 12, "step")
    ]


def test_the_memory_that_torch_noted_is_sampled(tmp_path: Path) -> None:
    args = {"Total Allocated": 70, "Total Reserved": 90, "Device Id": 1, "Device Type": 1}
    event = {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 7,
        "tid": 7,
        "ts": 5,
        "args": args,
    }
    timeline = read(written(tmp_path / "t.json", [event]))
    counters = timeline.tracks.filter(pl.col("kind") == "counter")["name"].to_list()
    assert counters == ["allocated_bytes", "reserved_bytes"]
    assert timeline.samples["value"].to_list() == [70.0, 90.0]


def series(timeline: Timeline) -> dict[tuple[str, str], list[float]]:
    """Return the values of each series by what it is about and its name."""
    names = dict(timeline.tracks.select("id", "name").iter_rows())
    counters = timeline.tracks.filter(pl.col("kind") == "counter")
    return {
        (names[parent], name): timeline.samples.filter(pl.col("track") == track)["value"].to_list()
        for track, parent, name in counters.select("id", "parent", "name").iter_rows()
    }


def test_counters_are_series_of_the_gpu_or_process_that_they_are_about(tmp_path: Path) -> None:
    def counted(name: str, ts: int, **values: object) -> dict[str, object]:
        return {"ph": "C", "name": name, "pid": 7, "ts": ts, "args": values}

    events = [
        lasting("cpu_op", "aten::mm", 1, 2),
        counted("GPU 0 Est. SM Efficiency", 5, **{"Est. SM Efficiency": 0.5}),
        counted("GPU 1 Utilization", 5, **{"GPU Utilization": 1}),
        counted("GPU 1 Utilization", 6, **{"GPU Utilization": 0}),
        counted("queue", 7, waiting=3, running=2.5),
        counted("queue", 8, waiting="many", running=1e999, **{"on\x1b[2J": True}),
        {"ph": "C", "name": "queue", "pid": [1], "ts": 9, "args": [1, 2]},
        {"ph": "C", "name": None, "pid": 7, "ts": "no time", "args": {"x": 1}},
    ]
    timeline = read(written(tmp_path / "t.json", events))
    assert {key: values for key, values in series(timeline).items() if values} == {
        ("gpu/0", "est_sm_efficiency"): [0.5],
        ("gpu/1", "utilization"): [1.0, 0.0],
        ("process 7", "queue_waiting"): [3.0],
        ("process 7", "queue_running"): [2.5],
    }
    assert timeline.spans.height == 1


def test_the_hosts_memory_that_torch_noted_is_a_series_of_the_process(tmp_path: Path) -> None:
    args = {"Total Allocated": 70, "Total Reserved": 0, "Device Id": -1, "Device Type": 0}
    events = [
        lasting("cpu_op", "aten::mm", 1, 2),
        {"ph": "i", "name": "[memory]", "pid": 7, "tid": 7, "ts": 5, "args": args},
    ]
    found = series(read(written(tmp_path / "t.json", events)))
    assert found == {("process 7", "cpu_allocated_bytes"): [70.0]}


def test_waits_of_streams_for_events_of_others_are_marked(tmp_path: Path) -> None:
    waited = {"device": 0, "stream": 20, "wait_on_stream": 24, "wait_on_cuda_event_record_corr_id": 1}
    events = [
        launched("a", 10, 5, 3),
        lasting("cuda_runtime", "cudaEventRecord", 1, 1, correlation=1),
        lasting("cuda_runtime", "cudaStreamWaitEvent", 3, 1, correlation=2),
        lasting("cuda_sync", "Stream Wait Event", 3, 1, 20, correlation=2, **waited),
        lasting("cuda_sync", "Stream Wait Event", 3, 1, 20, correlation=9, **waited),
        lasting("cuda_sync", "Stream Wait Event", 3, 1, 20, **{**waited, "correlation": "x", "stream": -1}),
    ]
    timeline = read(written(tmp_path / "t.json", events))
    names = dict(timeline.tracks.select("id", "name").iter_rows())
    ((time, track, detail),) = timeline.marks.select("time", "track", "detail").iter_rows()
    source, recorded = map(int, detail.split())
    assert (time, names[track], names[source], recorded) == (
        3_000, "gpu/0 stream 20", "gpu/0 stream 24", 1_000
    )  # fmt: skip


def test_what_a_trace_does_not_record_is_not_read_as_absent() -> None:
    evidence = Evidence(read(SAMPLE))
    for need in ("gc", "checkpoints", "values", "start_up", "recorder"):
        assert evidence.get(why_missing, need)
    assert evidence.get(why_missing, "data") is None


def steps_of(category: str, name: str) -> list[dict[str, object]]:
    """Return six marked steps in which a thread only does that."""
    marks = [lasting("user_annotation", f"ProfilerStep#{step}", 1000 * step, 999) for step in range(6)]
    work = [lasting(category, name, 1000 * step + 100 * at, 90) for step in range(6) for at in range(10)]
    return [*marks, *work]


def test_what_a_model_does_in_a_trace_that_trains_nothing_is_its_forward(tmp_path: Path) -> None:
    evidence = Evidence(read(written(tmp_path / "t.json", steps_of("cpu_op", "aten::mm"))))
    (trainer,) = evidence.get(find_trainers)
    assert evidence.get(find_account, trainer).shares["forward"] > 0.95


def test_a_trace_without_phases_does_not_blame_python(tmp_path: Path) -> None:
    timeline = read(written(tmp_path / "t.json", steps_of("cuda_runtime", "cudaLaunchKernel")))
    diagnosis = diagnose(timeline)
    assert diagnosis.findings == ()
    outcome = next(outcome for outcome in diagnosis.outcomes if outcome.rule == "python_overhead")
    assert (outcome.state, outcome.why) == (
        "not checked", "The imported files do not contain the phases of a step."
    )  # fmt: skip
    assert diagnosis.verdict.id == "unknown"
    assert diagnosis.steps.steady > 0
    assert list(diagnosis.account) == ["unknown"]
    assert [list(rank.account) for rank in diagnosis.ranks] == [["unknown"]]


def test_functions_outside_of_any_step_are_no_forward_passes(tmp_path: Path) -> None:
    events = [event for event in steps_of("cpu_op", "aten::mm") if event["cat"] == "cpu_op"]
    timeline = read(written(tmp_path / "t.json", events))
    assert timeline.spans["operation"].unique().to_list() == ["op"]
    assert Evidence(timeline).get(find_trainers) == ()


def test_the_thread_of_a_backward_pass_is_no_second_trainer_where_only_launches_are_known(
    tmp_path: Path,
) -> None:
    events = []
    for step in range(5):
        for at in range(20):
            now = 1000 * step + 10 * at
            number = 20 * step + at
            events += [
                lasting("cuda_runtime", "cudaLaunchKernel", now, 3, 7 if at < 11 else 8, correlation=number),
                launched(f"kernel {at}", now + 5, 4, number),
            ]
    evidence = Evidence(read(written(tmp_path / "t.json", events)))
    (trainer,) = evidence.get(find_trainers)
    assert evidence.get(find_steps, trainer).count == 5
    assert evidence.get(find_steps, trainer).anchor == "repetition of its 20 kernel launches"
