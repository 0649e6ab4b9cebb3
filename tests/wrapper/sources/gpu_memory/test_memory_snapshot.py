"""Memory snapshots are read without ever running what a pickle may bring along."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources.gpu_memory.memory_snapshot import Group, parse_snapshot, read_snapshot

REPOSITORY = Path(__file__).resolve().parents[4]
SAMPLES = REPOSITORY.parent / "shared/data/memory"

FRAMES = [
    {"filename": "CUDACachingAllocator.cpp", "line": 0, "name": "malloc"},
    {"filename": "/home/me/train.py", "line": 7, "name": "forward"},
]


def block(size: int, state: str = "active_allocated", frames: object = ()) -> dict[str, object]:
    """Return a block as torch writes it."""
    return {"address": 1, "size": size, "requested_size": size, "state": state, "frames": frames}


def test_live_blocks_are_summed_by_the_python_lines_that_allocated_them() -> None:
    blocks = [block(10, frames=FRAMES), block(5), block(30, frames=FRAMES), block(99, "inactive")]
    content = {"segments": [{"device": 0, "total_size": 200, "blocks": blocks}]}
    found = parse_snapshot(pickle.dumps(content), "x")
    assert (found.allocated, found.reserved) == (45, 200)
    assert found.groups == (Group(40, 2, (("/home/me/train.py", 7, "forward"),)), Group(5, 1, ()))


def test_what_the_recorder_writes_is_read(tmp_path: Path) -> None:
    content = {
        "perfwrap": 1, "device": 1, "asked_bytes": 5, "limit_bytes": 100, "free_bytes": 2,
        "counters": {"allocated_bytes": 90, "reserved_bytes": 98}, "top": [(60, 3, (("a.py", 1, "f"),))],
    }  # fmt: skip
    path = tmp_path / "host-1-1.pickle"
    path.write_bytes(pickle.dumps(content, 4))
    found = read_snapshot(path)
    assert (found.allocated, found.reserved, found.asked, found.limit, found.free) == (90, 98, 5, 100, 2)
    assert (found.device, found.groups) == (1, (Group(60, 3, (("a.py", 1, "f"),)),))


class Harmful:
    """Makes a file when it is loaded by plain pickle."""

    def __init__(self, call: object, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("call", [os.mkdir, eval, print, getattr, dict, list])
def test_a_pickle_that_brings_code_is_refused_and_not_run(
    tmp_path: Path, call: object, protocol: int
) -> None:
    made = tmp_path / "made"
    arguments = {os.mkdir: (str(made),), eval: (f"__import__('os').mkdir({str(made)!r})",)}
    data = pickle.dumps({"segments": [Harmful(call, *arguments.get(call, ()))]}, protocol)
    with pytest.raises(PerfwrapError, match="cannot be read as a memory snapshot"):
        parse_snapshot(data, "harmful.pickle")
    assert not made.exists()
    if call is os.mkdir:
        pickle.loads(data)
        assert made.exists(), "the test's own pickle does no harm"


@pytest.mark.parametrize(
    "data",
    [b"", b"not a pickle", b"\x80\x04.", pickle.dumps([1, 2]), pickle.dumps({"other": 1}), pickle.dumps(7),
     pickle.dumps({"segments": [{"device": 0}]}), b"cposix\nsystem\n(S'true'\ntR.", b"Pname\n."],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(PerfwrapError):
        parse_snapshot(data, "x.pickle")


def test_a_truncated_snapshot_is_refused() -> None:
    data = pickle.dumps({"segments": [{"device": 0, "total_size": 200, "blocks": [block(1)]}]})
    for length in range(len(data)):
        with pytest.raises(PerfwrapError):
            parse_snapshot(data[:length], "x.pickle")


@pytest.mark.parametrize(
    ("name", "allocated", "reserved", "has_stacks"),
    [
        ("llm_train_ctx128_fullstep", 54873829888, 61111009280, True),
        ("llm_forward_ctx128", 19498420224, 19667091456, True),
        ("llm_no_history", 55083942400, 75902222336, False),
    ],
)
def test_snapshots_of_real_trainings_are_read(
    name: str, allocated: int, reserved: int, has_stacks: bool
) -> None:
    path = SAMPLES / f"{name}.pickle.gz"
    if not path.is_file():
        pytest.skip("the recorded snapshots are not beside the repository")
    found = parse_snapshot(gzip.decompress(path.read_bytes()), name)
    assert (found.allocated, found.reserved) == (allocated, reserved)
    assert sum(group.size for group in found.groups) == allocated
    assert any(group.stack for group in found.groups) == has_stacks
