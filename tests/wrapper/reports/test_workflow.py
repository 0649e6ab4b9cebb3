from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports import workflow
from perfwrap.rules.model import Finding, Location, Option
from perfwrap.shown_text import visible

COMMAND = re.compile(r"^::(?P<kind>\w+)(?: (?P<properties>[^:]*))?::(?P<message>[^\r\n]*)$")


def test_each_finding_is_an_annotation_at_its_line(diagnosis: Diagnosis, script: Path) -> None:
    lines = workflow.annotated(diagnosis).splitlines()
    assert all(COMMAND.match(line) for line in lines)
    assert lines[0].startswith("::notice title=perfwrap::Data-bound")
    assert lines[1].startswith(
        "::warning file=train.py,line=3,title=perfwrap%3A data_loader_single_process::65 %25 of the training loop"
    )
    assert "endLine=11" in lines[2]


def test_paths_are_relative_to_the_repository_root(diagnosis: Diagnosis, script: Path) -> None:
    assert f"file={script.parent.name}/train.py" in workflow.annotated(diagnosis, str(script.parent.parent))
    assert f"file={script}," in workflow.annotated(diagnosis, "/elsewhere")


def test_at_most_ten_findings_are_annotated(diagnosis: Diagnosis) -> None:
    many = replace(diagnosis, findings=diagnosis.findings[:1] * 30)
    assert len(workflow.annotated(many).splitlines()) == 1 + workflow.MAX_ANNOTATIONS


@given(st.text(), st.text(min_size=1))
def test_any_text_stays_one_command_and_reads_back(message: str, file: str) -> None:
    line = workflow.command("warning", message, {"file": file, "line": "3"})
    found = re.fullmatch(r"::warning file=([^:,\r\n]*),line=3::([^\r\n]*)", line)
    assert found is not None
    # GitHub takes back exactly these escapes; percent signs are escaped first, so the order does not matter.
    new_lines = {ord("\r"): None, ord("\n"): None}
    assert _back(found[2]).translate(new_lines) == visible(message.translate(new_lines))
    assert _back(found[2]).count("\n") == message.count("\n")
    assert _back(found[1]).translate(new_lines) == visible(file.translate(new_lines))
    assert found[0].isprintable()


def _back(text: str) -> str:
    return re.sub("%(25|0D|0A|3A|2C)", lambda found: unquote(found[0]), text)


def test_a_hostile_finding_cannot_speak_a_command_of_its_own(diagnosis: Diagnosis) -> None:
    evil = Finding(
        "x\n::set-output name=a::b",
        0.5,
        (),
        (Option("y", (1.0, 1.0)),),
        location=Location("a\n::error::", 1),
    )
    lines = workflow.annotated(replace(diagnosis, findings=(evil,))).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::notice", "::warning"]


@pytest.mark.parametrize("named", [True, False])
def test_the_summary_is_appended_where_github_names_a_file(tmp_path: Path, named: bool) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    assert workflow.append_summary("after\n", {"GITHUB_STEP_SUMMARY": str(path)} if named else {}) is named
    assert path.read_text() == ("before\nafter\n" if named else "before\n")


def test_a_summary_that_cannot_be_written_is_said_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not workflow.append_summary("text\n", {"GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert f"cannot write the job summary {tmp_path}: Is a directory" in capsys.readouterr().err
