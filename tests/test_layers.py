"""Who may import whom: the table of CONTRIBUTING.md, held by a test."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
WRAPPER = REPOSITORY / "wrapper" / "perfwrap"
RECORDER = REPOSITORY / "inject"

BASE = {"errors", "units", "run_folder", "journal_format"}
ALLOWED = {
    "errors": set(),
    "units": set(),
    "journal_format": set(),
    "control_groups": set(),
    "redaction": set(),
    "shown_text": set(),
    "private_files": {"errors"},
    "shapes": set(),
    "manifest_shape": {"shapes"},
    "run_folder": {"private_files", "manifest_shape", "errors"},
    "launch": {"run_folder", "private_files", "control_groups", "redaction", "errors"},
    "monitors": {"run_folder", "journal_format", "control_groups", "redaction", "shown_text", "errors"},
    "checkup": {"launch", "monitors", "run_folder", "journal_format", "units", "errors"},
    "timeline": {"private_files", "manifest_shape", "shapes", "redaction", "errors"},
    "sources": {"timeline", "run_folder", "private_files", "journal_format", "errors"},
    "measures": {"timeline", "journal_format"},
    "rules": {"measures", "timeline", "units"},
    "verdict": {"rules", "measures", "timeline", "units"},
    "diagnosis": {"rules", "verdict", "measures", "timeline", "units", "errors"},
    "configuration": {"rules", "private_files", "errors"},
    "compare": {"units"},
    "live": {
        "diagnosis",
        "verdict",
        "rules",
        "measures",
        "sources",
        "timeline",
        "run_folder",
        "private_files",
        "journal_format",
        "errors",
    },
    "reports": {
        "shown_text",
        "private_files",
        "redaction",
        "live",
        "compare",
        "experiments",
        "diagnosis",
        "rules",
        "timeline",
        "units",
        "errors",
    },
    "experiments": {
        "private_files",
        "launch",
        "diagnosis",
        "rules",
        "measures",
        "sources",
        "timeline",
        "run_folder",
        "units",
        "errors",
    },
    "exporters": {"diagnosis", "reports", "timeline", "run_folder", "units", "errors"},
    "demo": {"errors"},
}
"""What each part may import, besides itself and the standard library; commands and cli may import all."""

LIBRARIES = {
    "launch": set(),
    "monitors": {"psutil", "pynvml", "amdsmi", "prometheus_client"},
    "checkup": set(),
    "run_folder": set(),
    "control_groups": set(),
    "redaction": set(),
    "shown_text": set(),
    "private_files": set(),
    "manifest_shape": set(),
    "shapes": set(),
    "errors": set(),
    "units": set(),
    "journal_format": set(),
}
"""Third-party modules of the recording half: it must work where polars is missing."""


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; imports are absolute"
            found.add(node.module or "")
            if node.module == "perfwrap":
                found.update(f"perfwrap.{alias.name}" for alias in node.names if alias.name != "__version__")
    return found - {"perfwrap"}


def part(path: Path) -> str:
    """Return the room that a file of the wrapper stands in."""
    first = path.relative_to(WRAPPER).parts[0]
    return first.removesuffix(".py")


FILES = sorted(path for path in WRAPPER.rglob("*.py") if part(path) in ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(WRAPPER)))
def test_a_part_imports_only_what_lies_below_it(path: Path) -> None:
    own = part(path)
    inside = {name.split(".")[1] for name in imports(path) if name.startswith("perfwrap.")}
    assert inside - {own} <= ALLOWED[own]


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if part(path) in LIBRARIES],
    ids=lambda path: str(path.relative_to(WRAPPER)),
)
def test_the_recording_half_needs_no_heavy_library(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"perfwrap"}
    assert outside <= LIBRARIES[part(path)]


@pytest.mark.parametrize(
    "path", sorted(RECORDER.rglob("*.py")), ids=lambda path: str(path.relative_to(RECORDER))
)
def test_the_injected_half_imports_only_itself_and_a_light_standard_library(path: Path) -> None:
    heavy = {"typing", "dataclasses", "logging", "subprocess", "json", "pathlib", "re", "inspect", "asyncio"}
    names = {name.split(".")[0] for name in imports(path)}
    own = {"perfwrap_recorder", "sitecustomize", "usercustomize", "torch", "nvtx"}
    assert not names & heavy
    assert names - own <= set(sys.stdlib_module_names) | {"__future__"}
