from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from perfwrap.experiments.plan import BASELINE
from perfwrap.experiments.reading import Reading, Steps
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.trial import Run, Trial
from perfwrap.experiments.written import Written
from perfwrap.fixing.candidates import NO_EDIT, Unedited
from perfwrap.fixing.search import Search
from perfwrap.reports import fix_document
from perfwrap.reports.terminal.fix_text import draw, draw_list
from perfwrap.reports.terminal.page import Page
from perfwrap.rules.model import Location


class Silent:
    def says(self, text: str) -> None: ...

    def begins(self, name: str, number: int) -> None: ...

    def ticks(self, seconds: float) -> None: ...

    def ends(self, run: Run) -> None: ...

    def stops(self) -> None: ...


def search_of(count: int, best: float = 0.6) -> Search:
    """A search that found no edit after a run of so many steady steps."""
    steps = Steps(np.arange(count), np.full(count, 1e6), np.full(count, 8))
    run = Run(BASELINE, Path("/runs/01-baseline"), Reading("measured", steps=steps), 1.0)
    trial = Trial(["python", "train.py"], Path("/runs"), Settings(), Silent(), [run])
    return Search(trial, False, 0.0, unedited=[Unedited("loop_in_model", NO_EDIT, saving=(best, 1.0))])


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize("count", [50, 300])
def test_without_an_edit_it_says_so_and_how_a_short_run_shows_more(count: int, is_list: bool) -> None:
    page = Page(io.StringIO())
    search = search_of(count)
    if is_list:
        draw_list([], search, page)
    else:
        draw(search, Written(), b"", Path("/runs/perfwrap.patch"), Path("/"), page)
    text = " ".join(page.text().split())
    assert f"No edit could be made for what {count} steady steps showed" in text
    assert (
        "The finding loop_in_model (a step would take 0.60 of its time at best) has no automatic edit."
        in text
    )
    assert "proven" not in text
    assert ("There is no patch." in text) is not is_list
    assert ("perfwrap fix --steps 300" in text) == (count == 50)


def test_nothing_to_gain_is_only_said_if_nothing_predicts_a_gain() -> None:
    page = Page(io.StringIO())
    draw_list([], search_of(300, best=0.98), page)
    text = " ".join(page.text().split())
    assert "Nothing to gain: in 300 steady steps, no finding predicts" in text
    assert "could be made" not in text


def test_rules_that_could_not_be_checked_are_named() -> None:
    page = Page(io.StringIO())
    search = search_of(300)
    search.unchecked = ["logging_overhead"]
    draw(search, Written(), b"", Path("/runs/perfwrap.patch"), Path("/"), page)
    assert "Not checked: logging_overhead." in page.text()


def test_documents_have_the_sentence_of_the_terminal(tmp_path: Path) -> None:
    search = search_of(300)
    left = Unedited(
        "loop_in_model", NO_EDIT, Location("/a/train.py", 12), (0.58, 1.0), "Call it once for all."
    )
    search.unedited = [left]
    document = fix_document.section(search, Written(), b"", tmp_path)
    assert document["unedited"] == [
        {
            "rule": "loop_in_model",
            "reason": NO_EDIT,
            "file": "/a/train.py",
            "line": 12,
            "predicted": [0.58, 1.0],
            "advice": "Call it once for all.",
            "sentence": left.sentence,
        }
    ]
    kept = {**document, "total": {"ratio": 0.5, "low": 0.4, "high": 0.6}}
    assert f"\n- {left.sentence}\n" in fix_document.markdown(kept)
