"""The stacks of a run for pprof, speedscope and as a picture: the same stacks and weights read back."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest
from msgspec.structs import replace as with_fields
from perfwrap.commands.run_report import read
from perfwrap.diagnosis.model import LineAccount
from perfwrap.errors import PerfwrapError
from perfwrap.exporters import flamegraph, pprof, speedscope_file
from perfwrap.exporters.export_model import Destination, Exported
from perfwrap.exporters.run_export import exported
from perfwrap.exporters.stack_profiles import find_profiles
from perfwrap.run_folder import RunFolder
from perfwrap.sources import SOURCES
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import SCHEMAS

MS = 1_000_000
OUTER = "<module> (/work/train.py:30)"
STACKS = [
    (f"{OUTER};step (/work/train.py:12)", 2),
    (f"{OUTER};step (/work/train.py:12)", 1),
    (f"{OUTER};load (/work/data;x.py:3)".replace(";x", "-x"), 4),
    (f"{OUTER};step (/work/train.py:12)", 5),
    (f"{OUTER};native <ü&>", 1),
]
STEP = {
    ("train.py:12 step", "model.py:3 Net.forward", "forward"): 1.5 * MS,
    ("train.py:12 step", "model.py:3 Net.forward", "backward"): 4.5 * MS,
    ("train.py:9 <module>", "python"): 0.4 * MS,
}


@pytest.fixture
def sampled(recorded: Path) -> Exported:
    """The recorded run with samples of its training thread."""
    return export_of(recorded, None)


@pytest.fixture
def inspected(recorded: Path) -> Exported:
    """The same with an inspected step."""
    return export_of(recorded, LineAccount(6.4 * MS, 6.5 * MS, (), (), STEP))


def export_of(recorded: Path, account: LineAccount | None) -> Exported:
    diagnosis, timeline = read(recorded)
    thread = int(timeline.spans["track"][0])
    rows = [
        {"time": at, "track": thread, "weight": weight, "stack": stack, "source": "py-spy"}
        for at, (stack, weight) in enumerate(STACKS)
    ]
    stacks = pl.DataFrame(rows, schema_overrides=SCHEMAS["stacks"])
    missing = [
        pl.lit(None, dtype=kind).alias(name) for name, kind in SCHEMAS["stacks"].items() if name not in stacks
    ]
    timeline = replace(timeline, stacks=stacks.with_columns(missing).select(list(SCHEMAS["stacks"])))
    diagnosis = replace(diagnosis, line_account=account)
    return exported(diagnosis, timeline, RunFolder(recorded), "tuned")


def expected(stacks: list[tuple[str, int]]) -> Counter[str]:
    """The weight of each sampled stack."""
    found: Counter[str] = Counter()
    for stack, weight in stacks:
        found[stack] += weight
    return found


def test_equal_stacks_that_follow_each_other_are_one_and_keep_their_order(sampled: Exported) -> None:
    (profile,) = sampled.profiles
    assert [weight for _, weight in profile.stacks] == [3, 4, 5, 1]
    assert (profile.unit, profile.total) == ("samples", 13)
    innermost = profile.stacks[-1][0][-1]
    assert (innermost.function, innermost.file, innermost.line) == ("native <ü&>", "", 0)


def test_speedscope_reads_the_same_stacks_with_the_step_first(inspected: Exported, tmp_path: Path) -> None:
    out = tmp_path / "a.speedscope.json"
    assert speedscope_file.export(inspected, Destination(out=out))[0] == f"Written: {out}"
    document = json.loads(out.read_text(encoding="utf-8"))
    frames = document["shared"]["frames"]
    step, thread = document["profiles"]
    assert (step["name"], step["unit"], step["endValue"]) == ("one step", "nanoseconds", 6_400_000)
    assert (thread["unit"], thread["weights"]) == ("none", [3, 4, 5, 1])
    for profile in (step, thread):
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= place < len(frames) for sample in profile["samples"] for place in sample)
    assert {"name": "step", "file": "/work/train.py", "line": 12} in frames
    assert {"name": "forward"} in frames


def test_perfwraps_own_reader_of_speedscope_files_finds_the_samples(
    sampled: Exported, tmp_path: Path
) -> None:
    from importlib import import_module

    reader = import_module(f"perfwrap.sources.{SOURCES['speedscope']}")
    out = tmp_path / "a.speedscope.json"
    speedscope_file.export(sampled, Destination(out=out))
    assert reader.recognises(out, out.read_bytes()[:4096])
    builder = TimelineBuilder()
    reader.add(builder, out)
    stacks = builder.build({}).stacks
    assert set(stacks["stack"]) == {stack for stack, _ in STACKS}


def profile_message() -> Any:
    """The class of pprof's message, built from the fields that its documentation lists."""
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    fields = {
        "ValueType": [("type", 1, "int64", 0), ("unit", 2, "int64", 0)],
        "Label": [("key", 1, "int64", 0), ("str", 2, "int64", 0), ("num", 3, "int64", 0)],
        "Sample": [("location_id", 1, "uint64", 1), ("value", 2, "int64", 1), ("label", 3, "Label", 1)],
        "Line": [("function_id", 1, "uint64", 0), ("line", 2, "int64", 0)],
        "Location": [("id", 1, "uint64", 0), ("mapping_id", 2, "uint64", 0), ("line", 4, "Line", 1)],
        "Function": [
            ("id", 1, "uint64", 0),
            ("name", 2, "int64", 0),
            ("system_name", 3, "int64", 0),
            ("filename", 4, "int64", 0),
        ],
        "Profile": [
            ("sample_type", 1, "ValueType", 1),
            ("sample", 2, "Sample", 1),
            ("location", 4, "Location", 1),
            ("function", 5, "Function", 1),
            ("string_table", 6, "string", 1),
            ("time_nanos", 9, "int64", 0),
            ("duration_nanos", 10, "int64", 0),
            ("comment", 13, "int64", 1),
            ("default_sample_type", 14, "int64", 0),
        ],
    }
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools", syntax="proto3")
    for name, known in fields.items():
        message = file.message_type.add(name=name)
        for field, number, kind, is_list in known:
            added = message.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if is_list else kinds.LABEL_OPTIONAL
            if kind in fields:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".perftools.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.Profile"))


def test_pprof_decodes_to_the_same_stacks_and_both_values(inspected: Exported, tmp_path: Path) -> None:
    out = tmp_path / "a.pb.gz"
    pprof.export(inspected, Destination(out=out))
    profile = profile_message().FromString(gzip.decompress(out.read_bytes()))
    texts = profile.string_table
    assert texts[0] == ""
    kinds = [(texts[one.type], texts[one.unit]) for one in profile.sample_type]
    assert kinds == [("samples", "count"), ("step_time", "nanoseconds")]
    assert texts[profile.default_sample_type] == "step_time"
    functions = {one.id: one for one in profile.function}
    locations = {one.id: one for one in profile.location}
    assert 0 not in functions
    assert 0 not in locations
    found: Counter[str] = Counter()
    step: Counter[str] = Counter()
    for sample in profile.sample:
        words = []
        for number in reversed(sample.location_id):
            (line,) = locations[number].line
            function = functions[line.function_id]
            name, file = texts[function.name], texts[function.filename]
            words.append(f"{name} ({file}:{line.line})" if file else name)
        (label,) = sample.label
        assert texts[label.key] == "thread"
        samples, ns = sample.value
        (step if ns else found)[";".join(words)] += ns or samples
    assert found == expected(STACKS)
    assert sum(step.values()) == 6_400_000
    assert step["step (train.py:12);Net.forward (model.py:3);backward"] == 4_500_000
    assert profile.time_nanos == inspected.begin_ns


def boxes(path: Path) -> dict[str, tuple[float, float, float]]:
    """Return left edge, top and width of each box by the beginning of its tooltip."""
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(path).getroot()
    assert not [node for node in root.iter() if node.tag == f"{space}script"]
    found = {}
    for group in root.iter(f"{space}g"):
        title, box = group.find(f"{space}title"), group.find(f"{space}rect")
        assert title is not None
        assert box is not None
        assert title.text
        name = title.text.rpartition(": ")[0]
        found[name] = tuple(float(box.get(key, "nan")) for key in ("x", "y", "width"))
    return found


def test_the_picture_of_a_step_has_boxes_as_wide_as_their_shares(inspected: Exported, tmp_path: Path) -> None:
    out = tmp_path / "a.svg"
    flamegraph.export(inspected, Destination(out=out))
    found = boxes(out)
    whole, step, backward = found["all"], found["step (train.py:12)"], found["backward"]
    assert step[2] / whole[2] == pytest.approx(6.0 / 6.4, abs=0.01)
    assert backward[2] / whole[2] == pytest.approx(4.5 / 6.4, abs=0.01)
    assert (step[1] - whole[1], backward[1] - whole[1]) == (flamegraph.ROW, 3 * flamegraph.ROW)
    assert backward[0] + backward[2] <= step[0] + step[2] + 1
    assert "one step, 6.4 ms" in out.read_text(encoding="utf-8")


def test_without_an_inspection_the_picture_is_of_the_samples(sampled: Exported) -> None:
    (line,) = flamegraph.export(sampled, Destination())
    path = Path(line.removeprefix("Written: "))
    assert path == sampled.folder / "exports" / "flamegraph.svg"
    found = boxes(path)
    assert found["step (train.py:12)"][2] / found["all"][2] == pytest.approx(8 / 13, abs=0.01)
    assert "native <ü&>" in found


@pytest.mark.parametrize("exporter", [pprof, speedscope_file, flamegraph])
def test_a_run_without_stacks_is_refused_and_links_are_not_followed(
    sampled: Exported, tmp_path: Path, exporter: Any
) -> None:
    with pytest.raises(PerfwrapError, match="no stacks"):
        exporter.export(with_fields(sampled, profiles=()), Destination())
    (sampled.folder / "exports").symlink_to(tmp_path)
    with pytest.raises(PerfwrapError, match="is a link"):
        exporter.export(sampled, Destination())


def test_a_run_that_was_not_sampled_has_no_profiles(recorded: Path) -> None:
    assert find_profiles(*read(recorded)) == ()
