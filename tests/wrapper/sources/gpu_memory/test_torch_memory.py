"""Memory snapshots are imported: by line, with what was in no use, over time, and where memory ran out."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.errors import PerfwrapError
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.gpu_memory import GpuMemory, find_gpu_memory
from perfwrap.reports import trace as trace_report
from perfwrap.sources import files
from perfwrap.sources.gpu_memory import torch_memory
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.lookup import samples_of
from perfwrap.timeline.model import Timeline

from tests.wrapper.sources.traces import lasting, written

REPOSITORY = Path(__file__).resolve().parents[4]
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", REPOSITORY.parent / "shared/data"))

MIB = 1 << 20
FORWARD = [
    {"filename": "CUDACachingAllocator.cpp", "line": 0, "name": "malloc"},
    {"filename": "/usr/lib/python3.11/site-packages/torch/nn/functional.py", "line": 5, "name": "linear"},
    {"filename": "/home/me/train.py", "line": 7, "name": "forward"},
]
STEP = [{"filename": "/home/me/train.py", "line": 9, "name": "step"}]


def block(address: int, size: int, state: str = "active_allocated", frames: Any = ()) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    size = sum(one["size"] for one in blocks)
    return {"device": device, "address": 1, "total_size": size, "blocks": list(blocks)}


def entry(action: str, size: int, address: int = 0, time: int | None = None, **more: Any) -> dict[str, Any]:
    reported = {"action": action, "addr": address, "size": size, "stream": 0, "frames": [], **more}
    return reported if time is None else {**reported, "time_us": time}


SEGMENTS = [
    segment(
        block(1, 40 * MIB, frames=FORWARD), block(2, 20 * MIB, "inactive"), block(3, 10 * MIB, frames=STEP)
    ),
    segment(block(4, 30 * MIB, "inactive")),
]
HISTORY = [
    entry("segment_alloc", 70 * MIB, 1, 100),
    entry("alloc", 40 * MIB, 1, 101),
    entry("alloc", 20 * MIB, 2, 102),
    entry("segment_alloc", 30 * MIB, 4, 102),
    entry("alloc", 30 * MIB, 4, 103),
    entry("oom", 64 * MIB, 0, 104, device_free=2 * MIB, frames=FORWARD),
    entry("free_requested", 20 * MIB, 2, 105),
    entry("free_completed", 20 * MIB, 2, 105),
    entry("free_requested", 30 * MIB, 4, 106),
]


def imported(path: Path, content: Any, protocol: int = 4) -> Timeline:
    """Return the timeline of a snapshot with some content."""
    path.write_bytes(pickle.dumps(content, protocol))
    timeline, (found,) = files.read([path], {})
    assert (found.format, found.problem) == ("torch_memory", "")
    return timeline


def memory(timeline: Timeline) -> GpuMemory:
    """Return the only device's memory."""
    (found,) = find_gpu_memory(Evidence(timeline))
    return found


def test_what_held_the_memory_is_reported_by_the_users_line(tmp_path: Path) -> None:
    found = memory(imported(tmp_path / "rank0.pickle", {"segments": SEGMENTS, "device_traces": [[]]}))
    assert (found.host, found.device) == ("rank0", "gpu/0")
    assert (found.allocated, found.reserved, found.free) == (50 * MIB, 100 * MIB, 50 * MIB)
    assert (found.largest_free, found.stuck, found.peak) == (30 * MIB, 20 * MIB, None)
    assert [(held.where, held.bytes, held.blocks) for held in found.lines] == [
        (Line("/home/me/train.py", 7, "forward"), 40 * MIB, 1),
        (Line("/home/me/train.py", 9, "step"), 10 * MIB, 1),
    ]


def test_gradients_without_a_requesting_line_are_distinguished_from_unknown_ones(tmp_path: Path) -> None:
    engine = {"filename": "??", "line": 0, "name": "torch::autograd::Engine::thread_main(std::shared_ptr)"}
    blocks = (block(1, 3, frames=[engine]), block(2, 2, frames=[{**engine, "name": "f"}]))
    lines = memory(imported(tmp_path / "a.pickle", {"segments": [segment(*blocks)]})).lines
    assert [(held.where, held.what, held.bytes) for held in lines] == [
        (None, "backward pass", 3),
        (None, "", 2),
    ]


def test_the_history_is_worked_out_backwards_from_the_snapshot(tmp_path: Path) -> None:
    timeline = imported(tmp_path / "a.pickle", {"segments": SEGMENTS, "device_traces": [HISTORY]})
    allocated = samples_of(timeline, "gpu/0", "allocated_bytes")
    # The 10 MiB of the third block are older than the history.
    assert [(time // 1000, value / MIB) for time, value in allocated.iter_rows()] == [
        (100, 10), (101, 50), (102, 70), (103, 100), (105, 80), (106, 50)
    ]  # fmt: skip
    reserved = samples_of(timeline, "gpu/0", "reserved_bytes")
    assert [(time // 1000, value / MIB) for time, value in reserved.iter_rows()] == [(100, 70), (102, 100)]
    assert memory(timeline).peak == 100 * MIB


def test_a_history_without_times_gives_the_peak_alone(tmp_path: Path) -> None:
    history = [{key: value for key, value in one.items() if key != "time_us"} for one in HISTORY]
    timeline = imported(tmp_path / "a.pickle", {"segments": SEGMENTS, "device_traces": [history]})
    assert timeline.samples.is_empty()
    assert memory(timeline).peak == 100 * MIB


def test_memory_that_ran_out_is_found_with_what_held_it(tmp_path: Path) -> None:
    timeline = imported(tmp_path / "a.pickle", {"segments": SEGMENTS, "device_traces": [HISTORY]})
    (finding,) = [found for found in diagnose(timeline).findings if found.rule == "out_of_memory"]
    assert "at train.py:7, which requested 64 MiB" in finding.sentence
    assert "free on the GPU 2 MiB, in use 100 MiB, reserved by torch 100 MiB" in finding.evidence[0]
    assert "40 MiB from train.py:7, 10 MiB from train.py:9" in finding.evidence[1]


def test_it_is_found_beside_a_trace_and_without_a_history_not_checked(tmp_path: Path) -> None:
    events = [lasting("cpu_op", "aten::mm", 1, 2), lasting("user_annotation", "ProfilerStep#1", 0, 9)]
    trace = written(tmp_path / "trace.json", events)
    for history, state in ((HISTORY, "found"), (HISTORY[:5], "clear"), ([], "not checked")):
        path = tmp_path / "a.pickle"
        path.write_bytes(pickle.dumps({"segments": SEGMENTS, "device_traces": [history]}))
        timeline, _ = files.read([trace, path], {"command": []})
        assert {one.rule: one.state for one in diagnose(timeline).outcomes}["out_of_memory"] == state


def test_a_snapshot_without_times_moves_nothing_else(tmp_path: Path) -> None:
    trace = written(tmp_path / "trace.json", [lasting("cpu_op", "aten::mm", 10**15, 2)])
    (tmp_path / "a.pickle").write_bytes(pickle.dumps({"segments": SEGMENTS}))
    timeline, _ = files.read([trace, tmp_path / "a.pickle"], {})
    trace_report.write(diagnose(timeline), timeline, tmp_path / "out.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    assert max(event.get("ts", 0) for event in document["traceEvents"]) < 10


def test_devices_and_files_are_kept_apart(tmp_path: Path) -> None:
    content = {"segments": [segment(block(1, MIB)), segment(block(1, 2 * MIB), device=1)]}
    for name in ("rank0.pickle", "rank1.pickle.gz"):
        data = pickle.dumps(content)
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    timeline, _ = files.read(sorted(tmp_path.iterdir()), {})
    assert [(one.host, one.device, one.allocated) for one in find_gpu_memory(Evidence(timeline))] == [
        ("rank0", "gpu/0", MIB), ("rank0", "gpu/1", 2 * MIB), ("rank1", "gpu/0", MIB), ("rank1", "gpu/1", 2 * MIB)
    ]  # fmt: skip


def test_segments_alone_are_a_snapshot_too(tmp_path: Path) -> None:
    assert memory(imported(tmp_path / "a.bin", SEGMENTS)).allocated == 50 * MIB


def test_the_allocators_settings_are_kept(tmp_path: Path) -> None:
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1}
    timeline = imported(tmp_path / "a.pickle", {"segments": SEGMENTS, "allocator_settings": settings})
    assert memory(timeline).expandable


BLOCK = block(1, 1)
SHARED_FRAMES = [{"filename": "a.py", "line": 1, "name": "f"}] * 5_000


@pytest.mark.parametrize(
    "content",
    [
        {"segments": [segment(block(1, -1))]},
        {"segments": [segment(block(1, 1 << 60))]},
        {"segments": [segment(block(1, 1.5))]},  # type: ignore[arg-type]
        {"segments": [segment(BLOCK, device=float("inf"))]},  # type: ignore[arg-type]
        {"segments": [[segment(BLOCK)]]},
        {"segments": None},
        {"segments": [{**segment(BLOCK), "blocks": 7}]},
        {"segments": [], "device_traces": [[{"size": 1}]]},
        {"segments": [], "device_traces": [[entry("alloc", 1 << 60)]]},
        {"segments": [{**segment(), "total_size": 0, "blocks": [BLOCK] * 50_000}] * 50_000},
        {"segments": [], "device_traces": [[entry("alloc", 1)] * 50_000] * 50_000},
    ],
)
def test_what_is_no_honest_snapshot_costs_only_itself(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(content))
    timeline, (found,) = files.read([path], {})
    assert found.format == "torch_memory"
    assert "could not be read" in found.problem
    assert timeline.warnings


def test_odd_words_and_numbers_are_corrected(tmp_path: Path) -> None:
    frames = [{"filename": "a\x1b[2J\x1f.py", "line": 1 << 70, "name": "f\n"}, *SHARED_FRAMES]
    events = [entry("oom", 5, 0, 1 << 70, frames=frames), entry("x" * 10_000, 0, 0, True)]
    timeline = imported(
        tmp_path / "a.pickle", {"segments": [segment(block(1, 1, frames=frames))], "device_traces": [events]}
    )
    (held,) = memory(timeline).lines
    assert held.where == Line("a [2J .py", (1 << 31) - 1, "f ")
    assert diagnose(timeline).findings[0].rule == "out_of_memory"


def test_a_packed_snapshot_that_breaks_off_is_left_out_with_a_note(tmp_path: Path) -> None:
    data = gzip.compress(pickle.dumps({"segments": SEGMENTS * 50}))
    path = tmp_path / "a.pickle.gz"
    path.write_bytes(data[: len(data) // 2])
    _, (found,) = files.read([path], {})
    assert found.problem


@pytest.mark.parametrize("name", ["llm_train_ctx128_fullstep", "llm_forward_ctx128", "llm_no_history"])
def test_real_snapshots_are_imported_with_their_figures(name: str) -> None:
    path = SHARED / f"memory/{name}.pickle.gz"
    if not path.is_file():
        pytest.skip("the recorded snapshots are not beside the repository")
    facts = json.loads((SHARED / "facts.json").read_text())[f"memory/{name}.pickle.gz"]["facts"]
    timeline, _ = files.read([path], {})
    found = memory(timeline)
    assert (found.allocated, found.reserved) == (facts["allocated_bytes"], facts["reserved_bytes"])
    assert sum(held.bytes for held in found.lines) == found.allocated
    assert found.allocated + found.free <= found.reserved
    assert found.largest_free <= found.free
    if not facts["trace_events"]:
        assert found.peak is None
        assert [held.where for held in found.lines] == [None]
        return
    assert found.peak is not None
    assert found.allocated <= found.peak <= found.reserved
    lines = [held.where for held in found.lines if held.where]
    assert lines
    assert not any("site-packages" in line.file for line in lines[:3])
    assert ("backward pass" in [held.what for held in found.lines]) == ("fullstep" in name)
    for metric, last in (("allocated_bytes", found.allocated), ("reserved_bytes", found.reserved)):
        assert samples_of(timeline, "gpu/0", metric)["value"][-1] == last


def nested(depth: int) -> bytes:
    """Return a pickle of a dictionary whose key is a tuple in a tuple and so on, as deep as that."""
    return b"\x80\x04})" + b"\x85" * depth + b"K\x01sX\x08\x00\x00\x00segments]s."


@pytest.mark.parametrize("depth", [3, 1_000_000])
def test_keys_that_would_end_the_process_that_looks_at_them_are_refused(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(nested(depth))
    assert torch_memory.recognises(path, nested(3))
    with pytest.raises(PerfwrapError):
        torch_memory.add(TimelineBuilder(), path)


def test_a_place_far_behind_all_others_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    # Python's own unpickler would make room for 32 GiB of others before it.
    path.write_bytes(b"\x80\x04}X\x08\x00\x00\x00segmentsr\xff\xff\xff\x7f]s.")
    torch_memory.add(TimelineBuilder(), path)
