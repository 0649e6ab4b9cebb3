"""The page of `perfwrap fix`: what it shows, and that nothing in it can act."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from perfwrap import units
from perfwrap.reports.html import fix_page

ROW = {
    "rule": "data_loader_single_process",
    "edit": "loader_options",
    "file": "/work/train.py",
    "line": 3,
    "sentence": "Add num_workers=2: the DataLoader at line 3.",
    "state": "kept",
    "reason": None,
    "equality": "rounding",
    "deviation": 1.2e-7,
    "predicted": [0.4, 0.6],
    "ratio": 0.512,
    "low": 0.5,
    "high": 0.525,
}
DROPPED = {
    **ROW,
    "state": "dropped",
    "reason": "it is slower <script>",
    "ratio": None,
    "low": None,
    "high": None,
}
DOCUMENT: dict[str, Any] = {
    "command": ["python", "train.py", "--name", "<b>&"],
    "root": "/work",
    "edits": [ROW, DROPPED],
    "unedited": [
        {"rule": "loop_in_model", "predicted": [0.58, 1.0], "sentence": "The finding <loop> has no edit."}
    ],
    "total": {"ratio": 0.512, "low": 0.5, "high": 0.525},
    "patch": "diff",
    "account": {
        "before": {"step_ns": 20_000_000, "shares": {"data": 0.75, "forward": 0.25}},
        "after": {"step_ns": 10_000_000, "shares": {"data": 0.5, "forward": 0.5}},
    },
}
OLD = "import torch\n\nloader = DataLoader(data)\nend = '<script>alert(1)</script>'\n"
NEW = "import torch\n\nloader = DataLoader(\n    data, num_workers=2)\nend = '<script>alert(1)</script>'\n"


class Cells(HTMLParser):
    """Collects the tags of a page, and the texts of the table of the diff."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self._is_inside = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        self._is_inside = self._is_inside or ("class", "diff") in attributes
        if tag == "tr" and self._is_inside:
            self.rows.append([])
        if tag == "td" and self._is_inside:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._is_inside and self.rows:
            self.rows[-1][-1] += data


def parsed(page: str) -> Cells:
    cells = Cells()
    cells.feed(page)
    return cells


def test_the_diff_stands_side_by_side_and_nothing_of_the_program_acts() -> None:
    page = fix_page.page(DOCUMENT, [("train.py", OLD, NEW)])
    cells = parsed(page)
    assert "script" not in cells.tags and "b" in cells.tags
    assert "script-src" not in page and "default-src 'none'" in page
    assert [[cell.strip("\n") for cell in row] for row in cells.rows] == [
        ["1", "import torch", "1", "import torch"],
        ["2", "", "2", ""],
        ["3", "loader = DataLoader(data)", "3", "loader = DataLoader("],
        ["", "", "4", "    data, num_workers=2)"],
        ["4", "end = '<script>alert(1)</script>'", "5", "end = '<script>alert(1)</script>'"],
    ]


def test_the_step_before_and_after_has_one_scale_and_its_parts() -> None:
    page = fix_page.page(DOCUMENT, [])
    assert re.findall(r'<div class=bar style="width:([\d.]+)%">', page) == ["100.00", "50.00"]
    assert f"A step takes {units.ratio(0.512, 0.5, 0.525)} of its time before" in page
    assert f"<td>{units.duration(15e6, 3)}</td><td>{units.duration(5e6, 3)}</td>" in page
    assert "largest deviation" in page and "it is slower &lt;script&gt;" in page
    assert "<details><summary>" in page and "<li>The finding &lt;loop&gt; has no edit.</li>" in page


@pytest.mark.parametrize(
    ("edits", "predicted", "title"),
    [
        ([DROPPED], 0.58, "No edit is proven to make this program faster"),
        ([], 0.58, "No edit could be made"),
        ([], 0.98, "Nothing to gain was found"),
    ],
)
def test_a_page_without_a_patch_says_why(edits: list[Any], predicted: float, title: str) -> None:
    nothing = {
        **DOCUMENT,
        "total": None,
        "patch": "",
        "edits": edits,
        "unedited": [{**DOCUMENT["unedited"][0], "predicted": [predicted, 1.0]}],
        "account": {"before": None, "after": None},
    }
    page = fix_page.page(nothing, [])
    assert f"<h1>{title}</h1>" in page and "<details open>" in page
    assert not parsed(page).rows


def test_the_parts_have_the_colours_of_the_report() -> None:
    theme = (Path(fix_page.__file__).with_name("assets") / "theme.js").read_text(encoding="utf-8")
    parts = theme.partition("const PARTS = {")[2].partition("}")[0]
    assert dict(re.findall(r"(\w+): '(#\w+)'", parts)) == fix_page.COLOURS
