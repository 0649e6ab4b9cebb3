from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import structs
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis, LineAccount, StepFigures, Verdict
from perfwrap.diagnosis.verdict import VERDICTS
from perfwrap.measures.account.parts import PARTS
from perfwrap.measures.dataflow.line_account import PARTS as PARTS_OF_A_LINE
from perfwrap.reports import json as json_report
from perfwrap.rules.model import Finding, Location, Option

SCHEMA = json.loads(json_report.SCHEMA.read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def problems(value: Any) -> list[str]:
    """Return what is wrong with a document, with where."""
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(value)]


def test_the_schema_is_one_and_is_beside_its_documentation(repository: Path) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads((repository / "docs" / "diagnosis.schema.json").read_text(encoding="utf-8")) == SCHEMA


def test_the_check_sees_what_is_wrong() -> None:
    document = {"format": 3, "verdict": {"share": 2}, "surprise": 1}
    found = "\n".join(problems(document))
    for words in (
        "2 was expected",
        "'findings' is a required",
        "'surprise' was unexpected",
        "$.verdict.share: 2 is",
    ):
        assert words in found


def test_the_document_follows_its_schema(diagnosis: Diagnosis) -> None:
    assert problems(json_report.document(diagnosis)) == []


def test_a_record_of_a_gpu_follows_the_schema(recording: Any) -> None:
    for start in range(0, 1_000, 100):
        recording.work(start, 60, launched=start - 5)
        recording.copy(start + 70, 5)
    document = json_report.document(diagnose(recording.build()))
    assert problems(document) == []
    assert document["gpu"][0]["kernels"] == 10


def test_an_abstention_follows_the_schema_too() -> None:
    assert problems(json_report.document(Diagnosis(Verdict("unknown", None, "No.", "none")))) == []


def test_the_top_level_is_what_was_promised(diagnosis: Diagnosis) -> None:
    document = json_report.document(diagnosis)
    assert list(document) == [
        *("format", "verdict", "findings", "would_not_help", "outcomes", "whole_run", "account"),
        *("line_account", "steps", "ranks"),
        *("skew", "processes", "warnings"),
        "perfwrap_cost",
        "gpu",
        "gpu_idle",
        "energy",
        "gpu_memory",
        "kernels",
        "run",
        "conditions",
        "machine",
    ]
    assert list(document["findings"][0]) == [
        *("rule", "severity", "share", "saving", "location", "evidence", "advice", "experiment", "options")
    ]
    assert list(document["steps"]) == [
        *("count", "steady", "median_ns", "p99_ns", "samples_per_s", "anchor", "trainer", "stretches")
    ]
    assert document["format"] == json_report.FORMAT == SCHEMA["properties"]["format"]["const"]


def test_a_finding_is_reported_with_two_digits_of_saving(diagnosis: Diagnosis) -> None:
    finding = json_report.document(diagnosis)["findings"][0]
    assert finding["saving"] == {"low": 0.41, "high": 0.7}
    assert finding["location"]["line"] == 3
    assert finding["evidence"][0] == diagnosis.findings[0].sentence
    assert finding["severity"] == "critical"


def test_the_options_are_in_their_order_and_the_first_is_the_advice(diagnosis: Diagnosis) -> None:
    finding = json_report.document(diagnosis)["findings"][0]
    first, second = finding["options"]
    assert first["saving"] == finding["saving"]
    assert first["experiment"] == finding["experiment"]
    assert f"{first['edit']} {first['details'] or ''}".rstrip() == finding["advice"]
    assert second == {
        "edit": "Cache the items of Digits.__getitem__.",
        "details": "This needs 6 MiB.",
        "saving": {"low": 0.6, "high": 0.8},
        "basis": "unchanged in 12 of 12 checks, 6 MiB",
        "experiment": "cached-batch",
        "location": finding["location"],
    }


def test_the_line_of_a_finding_is_that_of_its_best_option(diagnosis: Diagnosis) -> None:
    found = diagnosis.findings[0]
    best, other = found.options
    options = (replace(best, location=Location("data.py", 57)), other)
    changed = replace(diagnosis, findings=(replace(found, options=options), *diagnosis.findings[1:]))
    finding = json_report.document(changed)["findings"][0]
    assert finding["location"] == finding["options"][0]["location"] == {"file": "data.py", "line": 57}
    assert finding["options"][1]["location"]["line"] == 3


def test_what_would_not_help_is_said_with_its_figure(diagnosis: Diagnosis) -> None:
    assert json_report.document(diagnosis)["would_not_help"] == [
        {"advice": "Fewer .item() calls", "why": "they take 0.4 % of the loop (1 per step)"}
    ]


@given(st.dictionaries(st.sampled_from(PARTS), st.integers(0, 10**15), min_size=1), st.randoms())
def test_the_account_sums_to_exactly_one_in_any_order(account: dict[str, int], order: random.Random) -> None:
    shares = list(json.loads(json.dumps(json_report.account_shares(account))).values())
    order.shuffle(shares)
    assert sum(shares) == (1.0 if sum(account.values()) else 0.0)


def test_a_step_by_lines_follows_the_schema_and_sums_to_the_step(
    diagnosis: Diagnosis, line_account: LineAccount
) -> None:
    document = json_report.document(replace(diagnosis, line_account=line_account))
    assert problems(document) == []
    step = document["line_account"]
    assert step["step_ns"] == sum(line["ns"] for line in step["lines"]) == 10_000_000
    assert step["bare_step_ns"] == 10_500_000
    first = step["lines"][0]
    assert (Path(first["file"]).name, first["line"], first["function"]) == ("train.py", 7, "<module>")
    assert first["parts_ns"] == {"forward": 1_500_000, "backward": 4_500_000}
    assert first["parts"] == {"forward": 0.15, "backward": 0.45}
    assert first["share"] == 0.6
    assert first["kinds"] == {"mm": 2, "add": 1}
    assert first["module"] == "Net.blocks.0.linear"
    unknown = step["lines"][-1]
    assert (unknown["file"], unknown["line"], unknown["function"]) == (None, None, None)
    assert step["modules"][0] == {
        "path": "Net.head",
        "class": "Linear",
        "model": 1,
        "forward_ns": 200_000,
        "backward_ns": 400_000,
        "operations": 3,
    }


def test_a_line_of_a_notebook_has_its_cell(diagnosis: Diagnosis, line_account: LineAccount) -> None:
    cost = line_account.lines[0]
    inside = replace(cost, line=structs.replace(cost.line, file="digits.ipynb, cell [3]"))
    document = json_report.document(
        replace(diagnosis, line_account=structs.replace(line_account, lines=(inside,)))
    )
    assert problems(document) == []
    line = document["line_account"]["lines"][0]
    assert (line["file"], line["cell"], line["line"]) == ("digits.ipynb", 3, 7)


def test_without_a_window_there_is_no_step_by_lines(diagnosis: Diagnosis) -> None:
    assert json_report.document(diagnosis)["line_account"] is None


def test_the_schema_knows_every_part_of_a_line() -> None:
    line = SCHEMA["properties"]["line_account"]["properties"]["lines"]["items"]["properties"]
    for key in ("parts", "parts_ns"):
        assert line[key]["propertyNames"]["enum"] == list(PARTS_OF_A_LINE)


@given(
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.floats()),
    st.floats(),
    st.text(),
)
def test_no_number_and_no_text_makes_it_anything_but_strict_json(
    share: float | None, rate: float | None, saving: float, words: str
) -> None:
    finding = Finding(
        words,
        saving,
        (words,),
        (Option(words, (saving, saving)),),
        rule="gc_pause",
    )
    odd = Diagnosis(
        Verdict("healthy", share, words, "measured"), (finding,), steps=StepFigures(1, 1, rate, rate, rate)
    )
    text = json_report.text(odd)
    assert "NaN" not in re.sub(r'"(\\.|[^"\\])*"', "", text)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_it_is_written_in_one_step_and_reads_back(diagnosis: Diagnosis, tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.json"
    json_report.write(diagnosis, path)
    json_report.write(replace(diagnosis, warnings=("a lone \ud800 surrogate",)), path)
    assert json.loads(path.read_text(encoding="utf-8"))["warnings"] == ["a lone ? surrogate"]
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".json"] == ["diagnosis.json"]


def test_a_list_of_numbers_is_one_line_and_the_same_list() -> None:
    value = {"a": [1, -2, 3.5e-7], "b": ["[\n 1,\n 2\n]"], "c": [], "d": [[1, 2], [None, 3]]}
    text = json_report.dumped(value)
    assert json.loads(text) == value
    assert '"a": [1, -2, 3.5e-07]' in text


def test_the_schema_knows_every_verdict() -> None:
    assert set(SCHEMA["properties"]["verdict"]["properties"]["id"]["enum"]) == set(VERDICTS)


def test_the_documentation_names_every_key(repository: Path) -> None:
    text = (repository / "docs" / "diagnosis-json.md").read_text(encoding="utf-8")
    top = SCHEMA["properties"]
    inner = [top[name]["properties"] for name in ("verdict", "steps", "perfwrap_cost", "run", "machine")]
    items = [top[name]["items"]["properties"] for name in ("findings", "ranks", "gpu")]
    step = top["line_account"]["properties"]
    items += [step, *(step[name]["items"]["properties"] for name in ("lines", "modules"))]
    inner += [top["gpu"]["items"]["properties"][name]["properties"] for name in ("steps", "launch")]
    keys = set(itertools.chain(top, *inner, *items))
    assert {key for key in keys if f"`{key}`" not in text} == set()
    assert all(f"`{part}`" in text for part in PARTS)
