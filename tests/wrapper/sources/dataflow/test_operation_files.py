"""Windows that the recorder wrote for ``perfwrap run --inspect -- python train.py``, on a CPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.measures.dataflow.line_account import find_line_account
from perfwrap.measures.dataflow.wasted_work import UNCHANGING, find_wasted_work
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.sources.dataflow.operation_files import add_all
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

SAMPLES = Path(__file__).parents[3] / "samples" / "dataflow"
FIRST, SECOND = "operations-here-100-0.json", "operations-here-100-1.json"
MASK = 11
"""The line of train.py that makes the same mask in each step."""

Document = dict[str, Any]


@pytest.fixture
def tools(run: Any) -> Path:
    """The folder with the files of tools, of a run with a training loop."""
    journal = run.journal()
    for _ in range(40):
        journal.step()
    folder = Path(run.folder.path) / "tools"
    folder.mkdir()
    return folder


def read(run: Any) -> Timeline:
    return run.read()  # type: ignore[no-any-return]


def test_the_recorders_windows_are_those_of_the_process_that_wrote_them(run: Any, tools: Path) -> None:
    for name in (FIRST, SECOND):
        shutil.copy(SAMPLES / name, tools)
    timeline = read(run)
    assert timeline.warnings == ()
    trainer = Evidence(timeline).get(find_main_trainer)
    assert trainer is not None
    assert [window.process for window in timeline.operation_windows] == [trainer.process] * 2
    first, second = timeline.operation_windows
    assert first.opened < second.opened
    assert len(first.ends) == 3
    names = [function.name for function in first.functions]
    assert {"addmm", "tril", "relu", "_log_softmax"} <= set(names)


def test_times_are_on_the_clock_of_the_run(run: Any, tools: Path) -> None:
    shutil.copy(SAMPLES / FIRST, tools)
    builder = TimelineBuilder()
    add_all(run.folder, builder, lambda host, time: time - {"here": 7}[host])
    (window,) = builder.build({}).operation_windows
    assert window.opened == json.loads((SAMPLES / FIRST).read_text())["opened"] - 7


def test_what_is_wasted_in_them_is_found(run: Any, tools: Path) -> None:
    for name in (FIRST, SECOND):
        shutil.copy(SAMPLES / name, tools)
    evidence = Evidence(read(run))
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    work = evidence.get(find_wasted_work, trainer)
    assert work is not None
    (waste,) = work.wastes[UNCHANGING]
    assert [work.flow.name(number) for number in waste.operations] == ["ones", "tril"]
    assert (waste.lines[0].file, waste.lines[0].line) == ("/home/user/train.py", MASK)
    account = evidence.get(find_line_account, trainer)
    assert account is not None
    assert sum(account.share(cost) for cost in account.lines) == pytest.approx(1)
    assert {cost.line.line for cost in account.lines} <= set(range(20, 27)) | {MASK, 12}


@pytest.mark.parametrize(
    "name", ["operations.json", "operations-here-x-0.json", "operations-here-1-0.json.part"]
)
def test_files_of_other_names_are_not_read(run: Any, tools: Path, name: str) -> None:
    shutil.copy(SAMPLES / FIRST, tools / name)
    timeline = read(run)
    assert (timeline.operation_windows, timeline.warnings) == ((), ())


def cut(text: str) -> str:
    return text[: len(text) // 2]


def changed(change: Callable[[Document], object]) -> Callable[[str], str]:
    """Return a function that damages the text of a file by a change to its document."""

    def damage(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return damage


def set_to(key: str, value: object) -> Callable[[str], str]:
    return changed(lambda document: document.__setitem__(key, value))


def operation(place: int, value: object, number: int = 3) -> Callable[[str], str]:
    """Set one field of an operation."""
    return changed(lambda document: document["operations"][number].__setitem__(place, value))


FUNCTION, INSIDE, OUTSIDE, READS, WRITES, START, DURATION, GAP, MODULE = 0, 1, 2, 4, 6, 7, 8, 9, 13

DAMAGES: dict[str, Callable[[str], str]] = {
    "truncated": cut,
    "empty": lambda text: "",
    "a list": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
    "not UTF-8": lambda text: "\udcff" + text,
    "another format": set_to("format", 2),
    "a missing key": changed(lambda document: document.pop("nodes")),
    "a text for a number": set_to("opened", "soon"),
    "too few steps": set_to("ends", [1]),
    "steps out of order": changed(lambda document: document["first_operations"].reverse()),
    "a negative first operation": changed(lambda document: document["first_operations"].__setitem__(0, -4)),
    "steps beyond the end": changed(lambda document: document["first_operations"].__setitem__(3, 10**6)),
    "no step before": set_to("bare", []),
    "a negative time of a step": set_to("bare", [-5, -5]),
    "a huge number": set_to("opened", 10**30),
    "a function that does not exist": operation(FUNCTION, 10**6),
    "a negative function": operation(FUNCTION, -1),
    "a stack that does not exist": operation(INSIDE, 10**6),
    "a caller that does not exist": operation(OUTSIDE, -2),
    "a module that does not exist": operation(MODULE, 10**6),
    "a value that does not exist": operation(READS, [10**6, 0]),
    "half a read": operation(READS, [0]),
    "a negative value": operation(WRITES, [-1, 0, 0]),
    "a geometry that does not exist": operation(WRITES, [0, 10**6, 0]),
    "half a write": operation(WRITES, [0, 0]),
    "an unknown way to write": operation(WRITES, [0, 0, 9]),
    "a negative duration": operation(DURATION, -(10**9)),
    "a duration of centuries": operation(DURATION, 1 << 62),
    "a gap of centuries": operation(GAP, -(1 << 62)),
    "a start before the window": operation(START, -1),
    "a storage that does not exist": changed(
        lambda document: document["value_storage"].__setitem__(0, 10**6)
    ),
    "a maker that does not exist": changed(
        lambda document: document["value_operation"].__setitem__(0, 10**6)
    ),
    "fewer makers than values": changed(lambda document: document["value_operation"].pop()),
    "a node of no operation": changed(lambda document: document["nodes"].__setitem__("7", 10**6)),
    "a step that does not exist": changed(lambda document: document["storages"][0].__setitem__(0, 3)),
    "a negative shape": changed(lambda document: document["geometries"][0].__setitem__(1, [-4, 4])),
    "a shape without strides": changed(lambda document: document["geometries"][0].__setitem__(2, [])),
    "a GPU time of no operation": set_to("gpu", [[10**6, 5]]),
    "a negative GPU time": set_to("gpu", [[0, -5]]),
    "memory that does not exist": set_to("alive", [[10**6, 0]]),
    "an unowned storage that does not exist": set_to("unowned", [-1]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_costs_only_itself(run: Any, tools: Path, damage: Callable[[str], str]) -> None:
    text = damage((SAMPLES / FIRST).read_text())
    (tools / FIRST).write_bytes(text.encode("utf-8", "surrogateescape"))
    shutil.copy(SAMPLES / SECOND, tools)
    timeline = read(run)
    assert len(timeline.operation_windows) == 1
    (warning,) = timeline.warnings
    assert warning.startswith(f"The dataflow window {FIRST} cannot be read (")
    assert len(warning) < 400


def test_operations_of_two_threads_may_overlap(run: Any, tools: Path) -> None:
    (tools / FIRST).write_text(operation(GAP, -900)((SAMPLES / FIRST).read_text()))
    assert len(read(run).operation_windows) == 1


def test_the_name_of_a_program_may_be_no_text(run: Any, tools: Path) -> None:
    text = json.dumps(
        json.loads((SAMPLES / FIRST).read_text().replace("user/train", "\udcff\U0001f600/train"))
    )
    (tools / FIRST).write_text(text)
    (window,) = read(run).operation_windows
    assert {frame.file for stack in window.stacks for frame in stack} == {"/home/?\U0001f600/train.py"}


def test_a_file_that_cannot_be_opened_costs_only_itself(run: Any, tools: Path) -> None:
    (tools / FIRST).symlink_to(tools / "nowhere")
    shutil.copy(SAMPLES / SECOND, tools)
    timeline = read(run)
    assert len(timeline.operation_windows) == 1
    assert FIRST in timeline.warnings[0]


def test_of_a_window_larger_than_memory_allows_nothing_is_read(run: Any, tools: Path) -> None:
    with (tools / FIRST).open("w") as file:
        file.truncate((1 << 30) + 1)
    assert "it is too large" in read(run).warnings[0]
