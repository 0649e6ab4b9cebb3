"""What `perfwrap fix` prints where there is no patch."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from perfwrap.experiments.reading import Reading
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.trial import Run, Trial
from perfwrap.experiments.written import Written
from perfwrap.fixing.candidates import NO_EDIT, Unedited
from perfwrap.fixing.search import Search
from perfwrap.reports import fix_document
from perfwrap.reports.terminal import fix_text
from perfwrap.reports.terminal.page import Page
from perfwrap.rules.model import Location

LEFT = Unedited(
    "loop_in_model", NO_EDIT, Location("/a/train.py", 12), (0.58, 1.0), "Call it once for all samples."
)
SMALL = Unedited("gc_pause", "Line 3 is in no loop.", None, (0.99, 1.0), "Call gc.freeze().")


class Silent:
    def says(self, text: str) -> None: ...

    def begins(self, name: str, number: int) -> None: ...

    def ticks(self, seconds: float) -> None: ...

    def ends(self, run: Run) -> None: ...

    def stops(self) -> None: ...


@pytest.fixture
def search(tmp_path: Path) -> Search:
    trial = Trial(["python", "train.py"], tmp_path, Settings(), Silent())
    trial.runs.append(Run("baseline", tmp_path, Reading("measured"), 1.0))
    return Search(trial, False, 0.0)


def shown(search: Search, tmp_path: Path) -> str:
    stream = io.StringIO()
    page = Page(stream)
    fix_text.draw(search, Written(), b"", tmp_path / "perfwrap.patch", tmp_path, page)
    page.show()
    return " ".join(stream.getvalue().split())


def test_a_finding_without_an_edit_is_no_reason_to_say_nothing_is_to_gain(
    search: Search, tmp_path: Path
) -> None:
    search.unedited = [LEFT]
    text = shown(search, tmp_path)
    assert "No edit could be made. There is no patch." in text and "Nothing to gain" not in text
    assert (
        "The finding loop_in_model at train.py:12 (a step would take 0.58 of its time at best) has no automatic edit. "
        "By hand: Call it once for all samples." in text
    )


@pytest.mark.parametrize("unedited", [[], [SMALL]])
def test_nothing_to_gain_means_no_finding_that_gains(
    search: Search, unedited: list[Unedited], tmp_path: Path
) -> None:
    search.unedited = unedited
    assert "Nothing to gain: no finding predicts that a step can take 3.0 % less time." in shown(
        search, tmp_path
    )


def test_rules_that_could_not_be_checked_are_named(search: Search, tmp_path: Path) -> None:
    search.unchecked = ["logging_overhead"]
    assert "Not checked: logging_overhead." in shown(search, tmp_path)


def test_documents_have_the_same_sentence(search: Search, tmp_path: Path) -> None:
    search.unedited = [LEFT]
    document = fix_document.section(search, Written(), b"", tmp_path)
    assert document["unedited"] == [
        {
            "rule": "loop_in_model",
            "reason": NO_EDIT,
            "file": "/a/train.py",
            "line": 12,
            "predicted": [0.58, 1.0],
            "advice": "Call it once for all samples.",
            "sentence": LEFT.sentence,
        }
    ]
    kept = {**document, "total": {"ratio": 0.5, "low": 0.4, "high": 0.6}}
    assert f"\n- {LEFT.sentence}\n" in fix_document.markdown(kept)
