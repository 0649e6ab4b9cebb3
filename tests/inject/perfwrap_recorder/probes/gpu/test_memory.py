"""The allocator's counters are read where there is one; no GPU is needed to see that they are picked right.

The nested statistics below have the shape of ``torch._C._cuda_memoryStats``, and what stands in for torch has the few
functions that the probe asks: a machine of the tests need not have a GPU.
"""

from __future__ import annotations

import pytest

STATISTICS = """
STATISTICS = {
    "num_alloc_retries": 2, "num_ooms": 1, "max_split_size": -1, "num_device_alloc": 7, "num_device_free": 3,
    "allocated_bytes": {"all": {"current": 100, "peak": 300, "allocated": 900, "freed": 800},
                        "small_pool": {"current": 1, "peak": 2, "allocated": 3, "freed": 4}},
    "reserved_bytes": {"all": {"current": 400, "peak": 500, "allocated": 500, "freed": 100}},
    "segment": {"all": {"current": 4, "peak": 5, "allocated": 6, "freed": 2}},
}
from types import SimpleNamespace
from perfwrap_recorder.gpu.devices import Device
from perfwrap_recorder.probes.gpu import memory
class StandIn:
    def __init__(self, has_history):
        self.started, self.observers, self.asked = False, [], 0
        self.cuda = SimpleNamespace(is_initialized=lambda: self.started, current_device=lambda: 1)
        self._C = SimpleNamespace(
            _cuda_memoryStats=self.statistics,
            _cuda_attach_out_of_memory_observer=self.observers.append,
            _cuda_isHistoryEnabled=lambda: has_history,
            _cuda_memorySnapshot=lambda which: SNAPSHOT,
        )
    def statistics(self, device):
        assert self.started, "asked before the program has started CUDA"
        self.asked += 1
        return STATISTICS
FRAMES = [{"filename": "??", "line": 0, "name": "malloc"}, {"filename": "/mine/train.py", "line": 5, "name": "f"}]
def block(size, state="active_allocated", frames=FRAMES):
    return {"address": 1, "size": size, "state": state, "frames": frames}
SNAPSHOT = {"segments": [
    {"device": 1, "blocks": [block(5), block(7), block(50, "inactive"), block(1, frames=[])]},
    {"device": 0, "blocks": [block(1000)]},
]}
"""
START = """
stand_in = StandIn({history})
stand_in.started = True
device = Device(stand_in, "cuda")
"""


def samples(done) -> list[tuple[str, float]]:
    """Return series and value of the samples of the allocator."""
    import struct

    return [
        (found.name.replace("\x1f", " "), struct.unpack("<d", struct.pack("<q", found.value))[0])
        for found in done.journal.of("SAMPLE")
        if found.name.startswith("gpu/")
    ]


def test_the_counters_are_picked_from_the_nested_statistics(train) -> None:
    done = train(STATISTICS + START.format(history=False) + "memory._look(device)\n")
    assert samples(done) == [
        ("gpu/1 allocated_bytes", 100),
        ("gpu/1 reserved_bytes", 400),
        ("gpu/1 peak_allocated_bytes", 300),
        ("gpu/1 peak_reserved_bytes", 500),
        ("gpu/1 alloc_retries_count", 2),
        ("gpu/1 ooms_count", 1),
        ("gpu/1 device_allocs_count", 7),
        ("gpu/1 device_frees_count", 3),
    ]


def test_only_what_has_changed_is_written_again_and_what_is_missing_is_no_zero(train) -> None:
    done = train(
        STATISTICS
        + START.format(history=False)
        + """
for name in ("num_device_alloc", "num_device_free", "num_ooms"): del STATISTICS[name]
for _ in range(3): memory._look(device)
STATISTICS["allocated_bytes"]["all"]["current"] = 111
memory._look(device)
print(len(stand_in.observers))
"""
    )
    found = samples(done)
    assert len(found) == 6 and found[-1] == ("gpu/1 allocated_bytes", 111)
    assert not any("ooms" in name for name, _ in found)
    assert done.stdout == "1\n", "the observer is attached once"


def test_where_cuda_is_not_started_nothing_is_asked(train) -> None:
    done = train("""
from perfwrap_recorder.probes.gpu import memory
optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
for _ in range(50):
    optimizer.step()
    torch.cuda.empty_cache()
print(torch.cuda.is_initialized(), memory._watched, hasattr(torch._C, "_cuda_memoryStats"))
""")
    assert done.stdout.startswith("False []")
    assert not samples(done)
    assert not done.journal.of("EMPTY_CACHE")
    covered = "probe/memory" in [found.name for found in done.journal.of("COVERAGE")]
    assert covered == done.stdout.endswith("True\n")


def test_looks_are_at_the_ends_of_steps_and_at_most_ten_a_second(train) -> None:
    done = train("""
looks = []
journal.look_often(lambda: looks.append(clock.now()))
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
optimizer = torch.optim.SGD([parameter], lr=0.1)
began = clock.now()
while clock.now() < began + 350_000_000: optimizer.step()
gaps = [later - earlier for earlier, later in zip(looks, looks[1:])]
print(len(looks), all(gap >= 99_000_000 for gap in gaps))
""")
    many, is_rare = done.stdout.split()
    assert 2 <= int(many) <= 5 and is_rare == "True"


def test_emptying_the_cache_is_recorded_with_its_line(train) -> None:
    done = train("""
torch.cuda.is_initialized = lambda: True  # as on a machine with a GPU; what the original asks is another module's
from torch.cuda.memory import empty_cache
def clean():
    torch.cuda.empty_cache()  # EMPTY
torch.cuda.is_initialized = lambda: True
clean(), empty_cache()
torch.cuda.is_initialized = lambda: False
""")
    spans = done.journal.of("EMPTY_CACHE")
    assert [span.label for span in spans] == ["empty_cache", "empty_cache"]
    program = (done.run_dir / "program.py").read_text().splitlines()
    assert "EMPTY" in program[spans[0].line[1] - 1]


RUN_OUT = """
memory._look(device)
def allocate():
    stand_in.observers[0](1, 64, 1000, 10)  # ALLOCATE
for _ in range(30): allocate()
"""


@pytest.mark.parametrize("history", [True, False])
def test_where_memory_runs_out_the_numbers_and_the_line_are_said(train, history: bool) -> None:
    done = train(STATISTICS + START.format(history=history) + RUN_OUT)
    journal = done.journal
    marks = [
        journal.texts[mark.value].split("\x1f") for mark in journal.of("MARK") if mark.name == "out_of_memory"
    ]
    assert len(marks) == 20
    assert marks[0][:6] == ["1", "64", "1000", "10", "100", "400"]
    program = (done.run_dir / "program.py").read_text().splitlines()
    assert "ALLOCATE" in program[int(marks[0][7]) - 1] and marks[0][8] == "allocate"
    files = list((done.run_dir / "memory").glob("*.pickle"))
    assert len(files) == (3 if history else 0)
    for file in files:
        file.unlink()


def test_the_largest_live_blocks_are_read_back_by_the_other_half(train) -> None:
    from perfwrap.sources.gpu_memory.memory_snapshot import Group, read_snapshot

    done = train(STATISTICS + START.format(history=True) + RUN_OUT)
    files = sorted((done.run_dir / "memory").glob("*.pickle"))
    found = read_snapshot(files[0])
    for file in files:
        file.unlink()
    assert (found.device, found.asked, found.limit, found.free) == (1, 64, 1000, 10)
    assert (found.allocated, found.reserved) == (100, 400)
    assert found.groups == (Group(12, 2, (("/mine/train.py", 5, "f"),)), Group(1, 1, ()))
