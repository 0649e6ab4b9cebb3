"""Every relative link in the documentation leads to a file that is there, and to a heading that is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CHANGELOG.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "inject" / "README.md",
    REPOSITORY / "scripts" / "README.md",
    REPOSITORY / "scripts" / "workloads" / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?:\]\(|src=\")(?P<path>[^)\s#\"]*)(?:#(?P<anchor>[^)\s]*))?[)\"]")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
SCRIPT = re.compile(r"(?<![\w/])scripts/[\w/]+\.(?:py|toml)")


def prose(page: Path) -> str:
    """Return a page without its blocks of code, in which a bracket is no link and a # no heading."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them of their text."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {heading.strip().replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    dead = []
    for link in LINK.finditer(prose(page)):
        path, anchor = link["path"], link["anchor"]
        target = page.parent / path if path else page
        if re.match(r"[a-z]+:", path):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link.group())
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert dead_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_script_that_a_page_names_exists(page: Path) -> None:
    names = set(SCRIPT.findall(page.read_text(encoding="utf-8")))
    places = (REPOSITORY, REPOSITORY / "tests")
    assert [name for name in sorted(names) if not any((place / name).is_file() for place in places)] == []


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "## The `right` place\n\n[a](#the-right-place) [b](#another) [c](gone.md) [d](https://x.org)\n"
        '<img src="gone.png" width="9">\n```\n[e](in-code.md)\n```\n'
    )
    assert dead_links(page) == ["](#another)", "](gone.md)", 'src="gone.png"']


def test_the_entry_page_lists_each_page_once() -> None:
    linked = [link["path"] for link in LINK.finditer(prose(REPOSITORY / "docs" / "README.md"))]
    pages = {page.name for page in (REPOSITORY / "docs").glob("*.md")} - {"README.md"}
    assert {page: linked.count(page) for page in pages} == dict.fromkeys(pages, 1)
