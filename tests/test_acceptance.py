"""The tables that say where each promise is tested name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
NAMED = re.compile(r"`((?:inject|wrapper|end_to_end)/[\w./]+?)(?:::(\w+))?`")


@pytest.mark.parametrize("page", ["docs/acceptance.md", "docs/faults.md", "inject/README.md"])
def test_every_test_that_a_table_names_is_there(repository: Path, page: str) -> None:
    rows = [
        line for line in (repository / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    named = {found.groups() for row in rows for found in NAMED.finditer(row)}
    assert len(named) > 10
    for path, name in sorted(named, key=str):
        assert (TESTS / path).exists(), f"{page} names {path}"
        if name:
            assert f"def {name}(" in (TESTS / path).read_text(encoding="utf-8"), (
                f"{page} names {path}::{name}"
            )


def test_the_table_of_acceptance_tests_has_all_of_them(repository: Path) -> None:
    rows = re.findall(
        r"^\| (T\d\d)", (repository / "docs/acceptance.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(rows) == {f"T{number:02}" for number in range(1, 53)}
