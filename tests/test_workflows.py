"""What continuous integration and releases are made of is named by its commit, not by a name that can be moved."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
WORKFLOWS = REPOSITORY / ".github" / "workflows"
USES = re.compile(r"^\s*-?\s*uses:\s*(?P<action>\S+)", re.MULTILINE)
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")


def test_every_action_is_pinned_to_a_commit() -> None:
    used = [found for path in WORKFLOWS.glob("*.yml") for found in USES.findall(path.read_text())]
    assert len(used) >= 5
    assert [action for action in used if not PINNED.fullmatch(action)] == []


def test_no_workflow_may_write_but_the_one_that_publishes() -> None:
    for path in WORKFLOWS.glob("*.yml"):
        text = path.read_text()
        assert "permissions:\n  contents: read\n" in text, path
        granted = re.findall(r"^ +(\S+): write$", text, re.MULTILINE)
        assert granted == (["id-token"] if path.name == "release.yml" else []), path


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="needs check-jsonschema")
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-actions", [REPOSITORY / "action.yml"]),
        ("github-workflows", sorted(WORKFLOWS.glob("*.yml"))),
    ],
)
def test_what_github_reads_is_valid(schema: str, files: list[Path]) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *map(str, files),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
