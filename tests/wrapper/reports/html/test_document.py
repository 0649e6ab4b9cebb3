from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.measures.kernels.idle_blame import BLAMES
from perfwrap.reports import html
from perfwrap.reports.html import summary
from perfwrap.reports.html.document import document
from perfwrap.reports.html.encoding import embedded
from perfwrap.timeline.model import Timeline

MS = 1_000_000
TYPES = {"f4": "<f4", "i4": "<i4", "u4": "<u4", "u1": "u1"}


def read(packed: dict[str, Any]) -> Any:
    values = np.frombuffer(base64.b64decode(packed["b"]), TYPES[packed["d"]])
    return packed["first"] + values * packed["step"] if "step" in packed else values


def panel(page: dict[str, Any], name: str) -> dict[str, Any]:
    return next(found for found in page["panels"] if found["id"] == name)


def test_the_bar_of_the_account_sums_to_exactly_all_of_it(run: Any, fill: Any, reported: Any) -> None:
    fill(run)
    _, page = reported(run.read())
    assert sum(row["tenths"] for row in page["account"]) == 1000
    assert page["account"][0]["part"] == "data"
    assert sum(float(row["share"].removesuffix(" %")) for row in page["account"]) == pytest.approx(100)


def test_the_parts_of_each_step_sum_to_its_time(run: Any, fill: Any, reported: Any) -> None:
    fill(run)
    diagnosis, page = reported(run.read())
    layer = panel(page, "parts")["layers"][0]
    parts = sum(read(values).astype(float) for values in layer["parts"].values())
    assert diagnosis.overview is not None
    steps = diagnosis.overview.trainers[0].steps.filter("steady")
    assert parts == pytest.approx(steps["duration"].to_numpy() / MS, rel=1e-5)
    claimed = read(layer["claims"]["0"])
    assert (claimed <= parts * (1 + 1e-6)).all()
    share = claimed.sum() / parts.sum()
    assert share == pytest.approx(diagnosis.findings[0].share, abs=0.02)


def test_steps_that_were_only_counted_share_their_time(run: Any, reported: Any) -> None:
    journal = run.journal()

    def loop(steps: int) -> None:
        for _ in range(steps):
            journal.span("data", 6 * MS, "loader/1", 32, "train.py:5:main")
            journal.forward(2 * MS)
            journal.backward(MS)
            journal.optimizer(MS)

    for _ in range(4):  # the program ends while detail is paused
        loop(16)
        begin, counted = journal.now, 40
        journal.describe("THIN", start=begin, value=-1)
        journal.sum("data", begin, counted, 6 * MS * counted, "loader/1")
        journal.sum("optimizer", begin, counted, 0, "SGD#1")
        journal.python(10 * MS * counted)
        journal.describe("THIN", start=journal.now, value=4)
    _, page = reported(run.read())
    layer = panel(page, "parts")["layers"][0]
    parts = sum(read(values).astype(float) for values in layer["parts"].values())
    assert parts == pytest.approx(10, rel=0.01)
    assert parts.size == 4 * 56
    assert read(layer["parts"]["data"]).astype(float) == pytest.approx(6, rel=0.02)
    assert read(layer["claims"]["0"]).astype(float).max() <= 10.1


def test_no_moment_is_claimed_by_two_findings(run: Any, fill: Any, reported: Any) -> None:
    fill(run)
    diagnosis, page = reported(run.read())
    layer = panel(page, "parts")["layers"][0]
    parts = sum(read(values).astype(float) for values in layer["parts"].values())
    claims = sum(read(values).astype(float) for values in layer["claims"].values())
    assert (claims <= parts * (1 + 1e-6)).all()


def test_the_costliest_finding_comes_first_with_its_lines_its_edit_and_its_experiment(
    run: Any, tmp_path: Any, fill: Any, reported: Any
) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n".join(f"line_{number} = {number}" for number in range(1, 40)))
    fill(run, file=str(script))
    run.folder.write_manifest({"command": ["python", "train.py", "--x", "a b"], "cwd": str(tmp_path)})
    diagnosis, page = reported(run.read())
    first = page["findings"][0]
    assert first["rule"] == "data_loader_single_process"
    assert first["share"] == max(finding["share"] for finding in page["findings"])
    assert first["advice"] == diagnosis.findings[0].advice
    assert first["place"]["at"] == f"train.py:{first['place']['line']}"
    named = [[number, text] for number, text, is_named in first["place"]["lines"] if is_named]
    assert named == [[first["place"]["line"], f"line_{named[0][0]} = {named[0][0]}"]]
    assert len(first["place"]["lines"]) == 7
    assert (
        first["experiment"] == f"perfwrap try {diagnosis.findings[0].experiment} -- python train.py --x 'a b'"
    )
    assert [title for title, _ in first["documentation"]["sections"]][-1] == "When it is wrong"


def test_the_other_options_follow_the_best_one(diagnosis: Diagnosis) -> None:
    first = summary.findings(diagnosis)[0]
    assert first["basis"] == "10 ms per batch, 5.3 ms for the rest of the step, 2 cores"
    (other,) = first["others"]
    assert other["advice"] == "Cache the items of Digits.__getitem__. This needs 6 MiB."
    assert (other["gain"], other["basis"]) == ("60 to 80 %", "unchanged in 12 of 12 checks, 6 MiB")
    assert other["experiment"].startswith("perfwrap try cached-batch -- ")


def test_what_would_not_help_is_shown(run: Any, fill: Any, reported: Any) -> None:
    fill(run)
    diagnosis, page = reported(run.read())
    assert page["unhelpful"] == [each.sentence for each in diagnosis.would_not_help]


def test_the_worst_and_the_median_step_are_shown_with_all_their_spans(
    run: Any, fill: Any, reported: Any
) -> None:
    fill(run)
    _, page = reported(run.read())
    lanes = {lane["id"]: lane for lane in page["lanes"]}
    assert lanes["worst"]["step"] % 20 == 7
    assert lanes["median"]["step"] % 20 != 7
    worst = lanes["worst"]
    assert [lane["name"] for lane in worst["lanes"]] == ["thread 1 (100)"]
    begin = read(worst["start"])
    inside = (begin >= 0) & (begin < worst["length"])
    kinds = [page["categories"][number] for number in read(worst["category"])[inside]]
    assert sorted(kinds) == ["backward", "data", "forward", "optimizer", "sync"]
    assert worst["left_out"] == 0


def test_what_happened_at_a_moment_is_marked(run: Any, fill: Any, reported: Any) -> None:
    journal = fill(run)
    journal.non_finite(float("nan"))
    _, page = reported(run.read())
    marks = {mark["kind"]: mark for mark in page["marks"]}
    assert marks["garbage collection"]["count"] == 3
    assert marks["slow step"]["count"] == 3
    assert "NaN or infinity" in marks
    assert all(0 <= moment <= page["seconds"] for mark in marks.values() for moment in mark["x"])


def test_stacks_are_grouped_by_what_the_gpu_was_doing(make_recording: Any, reported: Any) -> None:
    recording = make_recording()
    for number in range(6):
        start = 1_000.0 * number
        recording.step(start, 1_000)
        recording.work(start + 20, 400, launched=start + 10)
        recording.host(start + 10, 900, "forward", "forward")
    for moment, weight in ((100, 7), (700, 2)):
        recording.builder.add_row(
            "stacks",
            time=moment * 1_000,
            track=recording.main,
            weight=weight,
            stack="main (a.py:1);f (a.py:2)",
            source="x",
        )
    recording.builder.add_row(
        "stacks", time=90_000_000, track=recording.main, weight=1, stack="main (a.py:1)", source="x"
    )
    _, page = reported(recording.builder.build({"imported": [{"format": "kineto"}]}))
    flames = page["flames"]
    groups = {
        label: samples
        for label, samples, kind in zip(flames["label"], flames["samples"], flames["kind"], strict=True)
        if kind == "group"
    }
    assert groups["GPU busy"] == 7
    assert groups["GPU not recorded"] == 1
    assert sum(groups.values()) == flames["total"] == 10
    assert sum(samples for label, samples in groups.items() if label.startswith("GPU idle: ")) == 2
    states = panel(page, "states")["layers"][0]["parts"]
    assert sum(read(values) for values in states.values()) == pytest.approx(100, abs=0.1)


def test_every_cause_of_idleness_has_a_colour() -> None:
    theme = (Path(html.__file__).parent / "assets" / "theme.js").read_text()
    states = theme.partition("const STATES = {")[2].partition("};")[0]
    assert {name for name in BLAMES if f" {name}: '#" not in states} == set()


def test_an_imported_loop_of_which_no_phase_is_known_has_no_parts(make_recording: Any, reported: Any) -> None:
    recording = make_recording()
    for number in range(6):
        recording.step(1_000.0 * number, 1_000)
        recording.work(1_000.0 * number + 20, 400, launched=1_000.0 * number + 10)
    _, page = reported(recording.builder.build({"imported": [{"format": "nsys"}]}))
    assert [row["part"] for row in page["account"]] == ["unknown"]
    shown = [found["id"] for found in page["panels"]]
    assert "steps" in shown
    assert "parts" not in shown


def test_ranks_are_compared_step_by_step_in_every_large_part(make_run: Any, reported: Any) -> None:
    run = make_run()
    for rank in range(3):
        journal = run.journal(pid=100 + rank, opened=1_000 * MS, rank=rank)
        for _ in range(50):
            journal.span("data", (1 + 2 * (rank == 1)) * MS, "loader/1", 32, "train.py:20:main")
            journal.span("forward", 4 * MS, "Net", 3, "train.py:21:main")
            journal.span("backward", (5 - 2 * (rank == 1)) * MS, line="train.py:23:main")
            journal.span("optimizer", MS, "SGD#1", line="train.py:24:main")
    _, page = reported(run.read())
    ranks = page["ranks"]
    assert ranks["names"] == ["rank 0", "rank 1", "rank 2"]
    waits = [float(np.nanmean(read(row))) for row in ranks["maps"]["data"]]
    assert waits == pytest.approx([1, 3, 1], rel=0.01)
    assert [float(np.nanmean(read(row))) for row in ranks["maps"]["step time"]] == pytest.approx(
        [11] * 3, rel=0.01
    )
    assert len(ranks["rows"][0]) == len(ranks["heads"])
    assert panel(page, "steps")["title"] == "Step time, rank 0"
    assert panel(page, "parts")["title"] == "Where the time of a step goes, rank 0"


def test_an_empty_run_and_a_failed_diagnosis_are_reported_too(run: Any) -> None:
    for timeline in (Timeline(), run.read()):
        diagnosis = diagnose(timeline, overview=True)
        page = document(diagnosis, timeline)
        json.loads(embedded(page))
        assert page["panels"] == []
        assert page["lanes"] == []
        assert page["verdict"]["sentence"]


def test_hostile_texts_are_exported_as_they_are_and_very_long_ones_are_cut(
    hostile: Timeline, reported: Any, attack: Any
) -> None:
    _, page = reported(hostile)
    back = json.loads(embedded(page))
    cells = [cell for row in back["tables"]["facts"]["rows"] for cell in row]
    # What turns the direction of reading round would make a text look like another.
    assert attack.text.replace("\u202e", "\ufffd") in cells
    assert "\u202e" not in str(back)
    longest = max(len(text) for text in texts(back))
    assert attack.long_path not in str(back)
    assert longest <= 4_000


def texts(value: Any) -> list[str]:
    """Return all texts of a document that are not packed numbers."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [] if "b" in value else [text for part in value.items() for text in texts(list(part))]
    return [text for part in value for text in texts(part)] if isinstance(value, list) else []
