"""The table of scripts/README.md lists every script that is run by hand, and no page names a script that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = REPOSITORY / "scripts"
ROW = re.compile(r"^\| `(?P<path>[\w./]+)", re.MULTILINE)
NAMED = re.compile(r"(?<![\w/])scripts/[\w./]*\w")
PARTS = {"accuracy/compare_noise_loop.py"}
"""The programs that take options and that another script starts."""
PAGES = [
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / "inject").glob("*.md"),
    *SCRIPTS.rglob("*.md"),
    *(path for path in SCRIPTS.rglob("*.py") if "workloads" not in path.parts),
    *(REPOSITORY / "wrapper" / "perfwrap").rglob("*.py"),
]


def test_the_table_lists_each_script_with_options_and_nothing_else() -> None:
    listed = set(ROW.findall((SCRIPTS / "README.md").read_text(encoding="utf-8")))
    assert [path for path in listed if not (SCRIPTS / path).is_file()] == []
    entries = {
        path.relative_to(SCRIPTS).as_posix()
        for path in SCRIPTS.rglob("*.py")
        if "workloads" not in path.parts and "argparse.ArgumentParser" in path.read_text(encoding="utf-8")
    }
    assert entries - listed == PARTS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_names_only_scripts_that_exist(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
