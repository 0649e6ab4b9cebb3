"""The journal source: every record finds its table, and damage costs only itself."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, INSTANTS, RECORD, SPANS
from perfwrap.sources import SOURCES
from perfwrap.timeline.model import SCHEMAS, Timeline


def track(timeline: Timeline, **wanted: object) -> dict[str, Any]:
    """Return the one track with these columns."""
    found = timeline.tracks.filter(*(pl.col(name) == value for name, value in wanted.items()))
    assert found.height == 1, timeline.tracks
    return found.row(0, named=True)


def test_the_journal_is_a_listed_source() -> None:
    assert "journal" in SOURCES


def test_all_tables_have_the_columns_of_the_model(run) -> None:
    run.journal().step()
    timeline = run.read()
    for table, schema in SCHEMAS.items():
        assert dict(getattr(timeline, table).schema) == schema, table


def test_a_span_keeps_its_time_label_and_thread(run) -> None:
    journal = run.journal()
    journal.name_thread(1, "MainThread", 4711)
    journal.now = 2_000
    journal.span("sync", 30, "Tensor.item", value=1, line="/home/me/train.py:31:main")
    timeline = run.read()
    thread = track(timeline, kind="thread")
    span = timeline.spans.row(0, named=True)
    assert (span["start"], span["duration"], span["value"]) == (2_000, 30, 1)
    assert (span["name"], span["operation"], span["category"]) == ("Tensor.item", "sync", "sync")
    assert (span["file"], span["line"], span["function"]) == ("/home/me/train.py", 31, "main")
    assert span["track"] == thread["id"]
    assert (thread["name"], thread["tid"], thread["pid"]) == ("MainThread", 4711, 100)


def test_an_unnamed_main_thread_is_recognised_by_its_number(run) -> None:
    journal = run.journal(pid=4711)
    journal.name_thread(1, "", 4711)
    journal.name_thread(2, "", 4712)
    journal.span("sync", 30)
    threads = run.read().tracks.filter(pl.col("kind") == "thread")
    assert threads["name"].to_list() == ["MainThread", "thread 2"]


def test_a_label_of_five_fields_is_read_for_its_first_four(run) -> None:
    run.journal().span("save", 5, "torch.save\x1ftrain.py\x1f3\x1fmain\x1flib/trainer.py:9")
    span = run.read().spans.row(0, named=True)
    assert (span["name"], span["file"], span["line"], span["function"]) == (
        "torch.save",
        "train.py",
        3,
        "main",
    )


@pytest.mark.parametrize("operation", [name.lower() for name in SPANS])
def test_every_kind_of_span_becomes_an_operation_with_a_category(run, operation: str) -> None:
    run.journal().span(operation, 5, "something")
    span = run.read().spans.row(0, named=True)
    assert span["operation"] == operation
    assert (span["category"] == "other") == (operation in ("import", "empty_cache", "gpu", "closure"))


def test_spans_are_sorted_by_start_and_what_contains_comes_first(run) -> None:
    journal = run.journal()
    with journal.inside("optimizer", "LBFGS#1"):
        journal.forward(10)
        journal.backward(10)
    other = run.journal(pid=200)
    other.now = 1_005
    other.forward(3)
    spans = run.read().spans
    assert spans["start"].is_sorted()
    assert spans["operation"].to_list()[:2] == ["optimizer", "forward"]


def test_ranks_and_roles_stand_on_processes_and_ranks_on_threads(run) -> None:
    run.journal(rank=3).step()
    run.journal(pid=200, role="worker").span("sync", 5, "Tensor.item")
    timeline = run.read()
    assert track(timeline, kind="process", pid=100)["rank"] == 3
    assert track(timeline, kind="thread", pid=100)["rank"] == 3
    assert track(timeline, kind="process", pid=200)["role"] == "worker"
    assert track(timeline, kind="host")["id"] == track(timeline, kind="process", pid=200)["parent"]


def test_a_program_that_executed_another_one_is_two_processes_of_one_pid(run) -> None:
    run.journal(sequence=0).step()
    run.journal(sequence=1, opened=9_000).step()
    processes = run.read().tracks.filter(pl.col("kind") == "process", pl.col("pid") == 100)
    assert processes.height == 2


def test_unknown_batch_sizes_and_file_sizes_are_missing_not_minus_one(run) -> None:
    journal = run.journal()
    journal.data(batch=-1)
    journal.span("save", 5, value=-1)
    assert run.read().spans["value"].to_list() == [None, None]


def test_a_value_that_is_not_finite_is_a_mark_with_its_line(run) -> None:
    journal = run.journal()
    journal.now = 3_000
    journal.non_finite(float("inf"), "Tensor.item\x1ftrain.py\x1f12\x1fmain")
    mark = run.read().marks.row(0, named=True)
    assert (mark["time"], mark["name"], mark["detail"], mark["value"]) == (
        3_000,
        "non_finite",
        "Tensor.item",
        float("inf"),
    )
    assert (mark["file"], mark["line"], mark["function"]) == ("train.py", 12, "main")


def test_facts_stand_on_the_process_that_wrote_them(run) -> None:
    run.journal(threads=2)
    timeline = run.read()
    facts = timeline.facts.filter(pl.col("track") == track(timeline, kind="process")["id"])
    assert dict(facts.select("key", "value").iter_rows())["threads"] == "2"


def test_monitor_facts_and_series_stand_on_what_they_are_about(run) -> None:
    run.journal(pid=100).step()
    monitor = run.journal(pid=50, role="monitor", cores_usable=2)
    monitor.fact("gpu/0/name", "H200")
    monitor.fact("process/100/cmdline", "python train.py")
    monitor.sample("host", "runnable_tasks", 3.0)
    monitor.sample("cpu/1", "busy_share", 0.5)
    monitor.sample("gpu/0", "power_watts", 412.5)
    monitor.sample("process/100", "rss_bytes", 1e9)
    timeline = run.read()
    facts = {(row["track"], row["key"]): row["value"] for row in timeline.facts.iter_rows(named=True)}
    assert facts[track(timeline, kind="host")["id"], "cores_usable"] == "2"
    assert facts[track(timeline, kind="gpu")["id"], "name"] == "H200"
    process = track(timeline, kind="process", pid=100)
    assert facts[process["id"], "cmdline"] == "python train.py"
    assert facts[track(timeline, kind="process", pid=50)["id"], "role"] == "monitor"
    power = track(timeline, kind="counter", name="power_watts")
    assert (power["parent"], power["unit"]) == (track(timeline, kind="gpu")["id"], "watts")
    assert track(timeline, kind="counter", name="rss_bytes")["parent"] == process["id"]
    assert track(timeline, kind="counter", name="rss_bytes")["unit"] == "bytes"
    assert sorted(timeline.samples["value"].to_list()) == [0.5, 3.0, 412.5, 1e9]


def test_coverage_says_what_was_watched_until_when_and_what_was_not(run) -> None:
    journal = run.journal()
    journal.describe("COVERAGE", "gc", start=1_100)
    journal.describe("COVERAGE", "gpu", journal.text("no NVIDIA driver"), start=1_200, duration=1)
    journal.describe("COVERAGE", "cuda", start=1_300, duration=500)
    journal.describe("LOST", "records", 17, start=1_400)
    journal.now = 9_000
    journal.describe("END")
    rows = {row["what"]: row for row in run.read().coverage.iter_rows(named=True)}
    assert (rows["gc"]["start"], rows["gc"]["end"]) == (1_100, 9_000)
    assert rows["gpu"]["end"] == rows["gpu"]["start"]
    assert rows["gpu"]["note"] == "no NVIDIA driver"
    assert rows["cuda"]["end"] == 1_800
    assert rows["records"]["lost"] == 17
    assert (rows["recorder"]["start"], rows["recorder"]["end"], rows["recorder"]["note"]) == (
        1_000,
        9_000,
        None,
    )


def test_a_process_that_could_no_longer_write_is_reported_and_not_taken_for_killed(run) -> None:
    journal = run.journal()
    note = journal.text("nothing was written any more: the disk took no more")
    journal.describe("COVERAGE", "journal", note, start=1_000, duration=5_000)
    journal.now = 6_000
    journal.describe("END")
    timeline = run.read()
    assert "Process 100: nothing was written any more: the disk took no more." in timeline.warnings
    rows = {row["what"]: row for row in timeline.coverage.iter_rows(named=True)}
    assert (rows["recorder"]["end"], rows["recorder"]["note"]) == (6_000, None)


def test_a_later_coverage_record_about_the_same_start_replaces_the_earlier_one(run) -> None:
    monitor = run.journal(role="monitor")
    monitor.describe("COVERAGE", "gpu", start=1_100)
    monitor.describe("COVERAGE", "gpu", monitor.text("lost"), start=1_100, duration=300)
    rows = run.read().coverage.filter(pl.col("what") == "gpu")
    assert rows.select("start", "end", "note").rows() == [(1_100, 1_400, "lost")]


def test_a_process_that_was_not_reached_is_explained_on_its_own_track(run) -> None:
    monitor = run.journal(role="monitor")
    monitor.describe("COVERAGE", "process/321", monitor.text("started with -I"), duration=1)
    timeline = run.read()
    row = timeline.coverage.filter(pl.col("note") == "started with -I").row(0, named=True)
    assert (row["what"], row["track"]) == ("recorder", track(timeline, kind="process", pid=321)["id"])


def test_a_process_without_an_end_record_is_said_to_have_been_killed(run) -> None:
    run.journal().step()
    assert "killed" in run.read().coverage["note"][0]


def test_sums_reach_until_detail_begins_again(run) -> None:
    journal = run.journal()
    journal.describe("THIN", start=2_000, value=0)
    journal.sum("sync", 2_000, 12, 340, "Tensor.item", "train.py:5:main")
    journal.describe("THIN", start=2_900, value=2)
    journal.describe("THIN", start=5_000, value=0)
    journal.sum("forward", 5_000, 3, 60, "Net")
    journal.describe("END", start=5_600)
    sums = run.read().sums
    assert sums.select("start", "end", "operation", "count", "duration", "line").rows() == [
        (2_000, 2_900, "sync", 12, 340, 5),
        (5_000, 5_600, "forward", 3, 60, None),
    ]


def test_thinned_and_lost_detail_is_said_in_the_coverage_and_to_the_user(run) -> None:
    journal = run.journal()
    journal.describe("THIN", start=2_000, value=0)
    journal.describe("THIN", start=3_000, value=8)
    journal.describe("LOST", "records", 17, start=3_500)
    timeline = run.read()
    (row,) = timeline.coverage.filter(pl.col("what") == "detail").rows(named=True)
    assert (row["start"], row["note"]) == (2_000, "one step in 8 at the end; only totals of the others")
    assert timeline.warnings == ("Process 100 could not store 17 of its records.",)


def test_long_texts_come_in_pieces_and_in_any_order(run) -> None:
    journal = run.journal()
    path = "/home/somebody/projects/größer/" + "deep/" * 30 + "train.py"
    journal.span("sync", 5, "Tensor.item", line=f"{path}:7:main")
    assert run.read().spans["file"][0] == path


def test_missing_pieces_of_texts_are_noted_and_cost_only_the_text(run) -> None:
    journal = run.journal()
    journal.span("sync", 5, "x" * 100)
    journal._slots = [slot for slot in journal._slots if slot[28:] != struct.pack("<HH", 1, DESCRIBE["TEXT"])]
    timeline = run.read()
    assert timeline.spans.height == 1
    assert any("missing pieces" in warning for warning in timeline.warnings)


def test_spans_whose_text_is_lost_are_kept_without_a_name(run) -> None:
    journal = run.journal()
    journal.raw(RECORD.pack(1_500, 5, 0, 999, 1, SPANS["FORWARD"]))
    timeline = run.read()
    assert timeline.spans.select("name", "operation").rows() == [(None, "forward")]
    assert any("lost their names" in warning for warning in timeline.warnings)


def test_a_file_cut_short_is_read_up_to_its_last_whole_record(run) -> None:
    journal = run.journal()
    journal.data()
    journal.forward()
    journal.write(cut=7)
    timeline = run.read()
    assert timeline.spans["operation"].to_list() == ["data"]
    assert any("truncated" in warning for warning in timeline.warnings)


def test_torn_slots_are_skipped_and_counted(run) -> None:
    journal = run.journal()
    for _ in range(8):
        journal.data()
    journal.raw(RECORD.pack(2_000, 5, 0, 0, 1, 0))
    journal.forward()
    timeline = run.read()
    assert timeline.spans.height == 9
    assert timeline.coverage["lost"][0] == 1


def test_slots_kept_for_the_end_are_no_loss(run) -> None:
    journal = run.journal(role=None)
    journal._slots = journal._slots[:1] + [bytes(RECORD.size)] * 7
    journal.step()
    assert run.read().coverage["lost"][0] == 0


def test_the_untouched_rest_of_a_segment_is_no_loss(run) -> None:
    journal = run.journal()
    journal.step()
    journal.write(spare_slots=100_000)
    timeline = run.read()
    assert timeline.coverage["lost"][0] == 0
    sizes = timeline.facts.filter(pl.col("key") == "journal_bytes")["value"].to_list()
    assert int(sizes[0]) < 10_000


def test_records_of_unknown_kinds_and_impossible_times_are_left_out_and_noted(run) -> None:
    journal = run.journal()
    journal.record(63, 1_500)
    journal.record(SPANS["FORWARD"], -(2**62), 5)
    journal.record(SPANS["FORWARD"], 1_500, -5)
    journal.step()
    timeline = run.read()
    assert timeline.spans.height == 4
    assert any("does not know" in warning for warning in timeline.warnings)
    assert any("2 records have impossible times" in warning for warning in timeline.warnings)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (bytes(64), "is empty"),
        (b"PK\x03\x04 something else entirely here", "is not a journal"),
    ],
)
def test_files_that_are_no_journals_are_left_out_with_a_warning(run, content: bytes, why: str) -> None:
    run.journal().step()
    (run.folder.journal / "here-9-9-0.pwj").write_bytes(content)
    timeline = run.read()
    assert timeline.spans.height == 4
    assert [why in warning for warning in timeline.warnings] == [True]


def test_one_journal_of_a_newer_format_costs_only_itself(run) -> None:
    run.journal().step()
    run.journal(pid=200, number=99).step()
    timeline = run.read()
    assert timeline.spans.height == 4
    assert any("format 99" in warning for warning in timeline.warnings)


def test_a_run_of_a_newer_format_is_refused_with_what_to_do(run) -> None:
    run.journal(number=99).step()
    with pytest.raises(PerfwrapError) as error:
        run.read()
    assert "newer perfwrap" in error.value.message
    assert "Upgrade" in error.value.hint


def test_a_newer_run_folder_is_refused(run) -> None:
    run.folder.manifest.write_text(json.dumps({"format": 99}))
    with pytest.raises(PerfwrapError, match="newer perfwrap"):
        run.read()


def test_a_run_without_journals_is_an_empty_timeline_with_a_warning(run) -> None:
    timeline = run.read()
    assert timeline.spans.is_empty()
    assert timeline.warnings
    assert timeline.run["command"] == ["python", "train.py"]


def test_a_journal_under_another_name_is_still_read(run) -> None:
    journal = run.journal()
    journal.step()
    journal.write().rename(run.folder.journal / "copied.pwj")
    run.journals.clear()
    timeline = run.read()
    assert timeline.spans.height == 4
    assert track(timeline, kind="process")["pid"] == 100


def test_two_hosts_come_onto_the_clock_of_the_first(run) -> None:
    first = run.journal(host="one", opened=1_000, wall=1_700_000_000_000_001_000)
    second = run.journal(host="two", opened=900_000, wall=1_700_000_000_000_005_000)
    first.forward(10)
    second.forward(10)
    second.describe("CLOCK", start=910_000, value=1_700_000_000_000_015_000)
    timeline = run.read()
    assert timeline.spans["start"].to_list() == [1_000, 5_000]
    assert timeline.run["hosts"] == ["one", "two"]


def test_a_journal_can_be_read_while_it_is_written(run) -> None:
    journal = run.journal()
    journal.step()
    journal.write(spare_slots=50)
    before = run.read().spans.height
    journal.step()
    journal.write(spare_slots=46)
    assert (before, run.read().spans.height) == (4, 8)


def test_start_records_describe_recorded_processes(run: Any) -> None:
    run.start(100, monotonic_ns=400, ppid=42)
    run.journal(pid=100).step()
    timeline = run.read()
    process = track(timeline, kind="process", pid=100)["id"]
    facts = dict(timeline.facts.filter(pl.col("track") == process).select("key", "value").iter_rows())
    assert (facts["started"], facts["ppid"], facts["reached_by"]) == ("400", "42", "sitecustomize")


def test_processes_that_never_imported_torch_are_known_and_said_to_be_unrecorded(run: Any) -> None:
    run.start(77, argv="python\x1fprepare.py")
    run.journal(pid=100).step()
    timeline = run.read()
    process = track(timeline, kind="process", pid=77)
    row = timeline.coverage.filter(pl.col("track") == process["id"]).row(0, named=True)
    assert (row["note"], row["start"], row["end"]) == ("never imported torch", 500, 500)
    assert process["role"] == "other"


def test_each_start_of_a_process_that_executes_again_finds_its_own_journal(run: Any) -> None:
    run.start(100, monotonic_ns=500, argv="first")
    run.start(100, monotonic_ns=5_000, argv="second")
    run.journal(pid=100, opened=1_000, sequence=0).step()
    run.journal(pid=100, opened=6_000, sequence=1).step()
    timeline = run.read()
    rows = timeline.facts.filter(pl.col("key") == "argv").sort("time")
    opened = timeline.coverage.filter(pl.col("what") == "recorder").select("track", opened="start")
    assert rows.join(opened, on="track").select("value", "opened").rows() == [
        ("first", 1_000),
        ("second", 6_000),
    ]


def test_a_recorder_that_could_not_start_is_reported_with_its_reason(run: Any) -> None:
    run.start(77, monotonic_ns=500)
    run.start(77, monotonic_ns=600, event="failed", argv="SyntaxError: damaged")
    run.journal().step()
    timeline = run.read()
    assert timeline.tracks.filter(pl.col("pid") == 77, pl.col("kind") == "process").height == 1
    reported = timeline.coverage.filter(pl.col("source") == "starts")["note"].to_list()
    assert reported == ["could not start its recorder: SyntaxError: damaged"]


def test_start_lines_that_were_cut_short_are_skipped(run: Any) -> None:
    run.start(77)
    with (run.folder.starts / "here.log").open("a") as file:
        file.write("start\t88\t1")
    run.journal().step()
    pids = run.read().tracks.filter(pl.col("kind") == "process")["pid"].to_list()
    assert sorted(pids) == [77, 100]


def test_fifty_thousand_records_of_many_files_are_all_read(make_run: Callable[[], Any]) -> None:
    run = make_run()
    for pid in range(100, 105):
        journal = run.journal(pid=pid)
        for _ in range(2_500):
            journal.step()
    timeline = run.read()
    assert timeline.spans.height == 5 * 2_500 * 4
    assert timeline.spans["start"].is_sorted()


def test_samples_of_a_thread_are_stacks_with_line_and_phase(run: Any) -> None:
    journal = run.journal()
    journal.name_thread(1, "MainThread", 77)
    for phase, count in (("forward", 3), ("", 5)):
        label = FIELD_SEPARATOR.join([phase, "/home/me/train.py", "12", "main"])
        journal.record(INSTANTS["STACK"], journal.now, 400, count, label)
        journal.now += 1000
    timeline = run.read()
    assert "stack" not in timeline.marks["name"].to_list()
    rows = timeline.stacks
    assert rows["weight"].to_list() == [3, 5]
    assert rows["operation"].to_list() == ["forward", None]
    assert rows["stack"].to_list() == ["main (/home/me/train.py:12)"] * 2
    assert set(rows["line"]) == {12}
    timeline = run.read()
    (thread,) = timeline.tracks.filter(tid=77)["id"]
    assert set(rows["track"]) == {thread}
