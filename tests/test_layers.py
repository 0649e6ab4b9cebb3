"""Who may import whom: the table of CONTRIBUTING.md, held by a test."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
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
    "journal_words": {"journal_format"},
    "monitor_options": set(),
    "control_groups": set(),
    "redaction": set(),
    "shown_text": set(),
    "private_files": {"errors"},
    "shapes": set(),
    "manifest_shape": {"shapes"},
    "run_folder": {"private_files", "manifest_shape", "errors"},
    "launch": {
        "monitors",
        "run_folder",
        "monitor_options",
        "private_files",
        "control_groups",
        "redaction",
        "errors",
    },
    "monitors": {
        "run_folder",
        "journal_format",
        "journal_words",
        "monitor_options",
        "control_groups",
        "redaction",
        "shown_text",
        "errors",
    },
    "checkup": {"launch", "monitors", "run_folder", "journal_format", "journal_words", "units", "errors"},
    "timeline": {"private_files", "manifest_shape", "shapes", "redaction", "errors"},
    "sources": {"timeline", "run_folder", "private_files", "journal_format", "errors"},
    "measures": {"timeline", "journal_format"},
    "rules": {"measures", "timeline", "units"},
    "diagnosis": {"rules", "measures", "timeline", "units", "private_files", "errors"},
    "comparison": {"units", "errors"},
    "analysis": {
        "diagnosis",
        "measures",
        "sources",
        "timeline",
        "run_folder",
        "private_files",
        "units",
        "errors",
    },
    "live": {
        "diagnosis",
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
        "comparison",
        "experiments",
        "fixing",
        "diagnosis",
        "rules",
        "timeline",
        "units",
        "errors",
    },
    "experiments": {
        "edits",
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
    "edits": {"private_files", "errors"},
    "fixing": {
        "edits",
        "experiments",
        "launch",
        "diagnosis",
        "rules",
        "measures",
        "timeline",
        "run_folder",
        "units",
        "errors",
    },
    "api": {
        "analysis",
        "comparison",
        "diagnosis",
        "reports",
        "rules",
        "sources",
        "timeline",
        "run_folder",
        "private_files",
        "units",
        "errors",
    },
    "agents": {
        "analysis",
        "reports",
        "rules",
        "run_folder",
        "private_files",
        "units",
        "errors",
    },
    "notebook": {"launch", "run_folder", "units", "errors", "shown_text"},
    "exporters": {
        "diagnosis",
        "reports",
        "timeline",
        "run_folder",
        "private_files",
        "shown_text",
        "units",
        "errors",
    },
    "demo": {"errors"},
}
"""What each part may import, besides itself and the standard library; commands and cli may import all."""

LIBRARIES = {
    "launch": set(),
    "monitor_options": set(),
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
    "journal_words": set(),
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


MODULES = {
    ".".join(path.relative_to(WRAPPER.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(WRAPPER.rglob("*.py"))
}
SHARED_NAMES = {"model", "out_of_memory", "phase_balance", "repeated_backward", "slow_steps", "stacks"}
"""File names that a measure or a rule still shares with another file."""


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, also in functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else node.module for name in names)
    return found & set(MODULES)


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the strongly connected components of a graph that hold a circle (Tarjan's algorithm)."""
    found: list[set[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        open_nodes.append(node)
        for following in graph[node]:
            if following not in order:
                visit(following)
                lowest[node] = min(lowest[node], lowest[following])
            elif following in open_nodes:
                lowest[node] = min(lowest[node], order[following])
        if lowest[node] == order[node]:
            place = open_nodes.index(node)
            component = set(open_nodes[place:])
            del open_nodes[place:]
            if len(component) > 1 or node in graph[node]:
                found.append(component)

    for node in graph:
        if node not in order:
            visit(node)
    return found


def test_circles_of_any_length_are_found() -> None:
    graph = {"a": "b", "b": "cd", "c": "a", "d": "e", "e": "", "f": "f", "g": "a"}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["f"]]


def test_no_module_imports_itself_through_others() -> None:
    assert circles({module: imported_modules(path) for module, path in MODULES.items()}) == []


def test_no_part_imports_itself_through_others() -> None:
    graph: dict[str, set[str]] = {part(path): set() for path in MODULES.values()}
    for path in MODULES.values():
        inside = {part(MODULES[name]) for name in imported_modules(path) if name != "perfwrap"}
        graph[part(path)] |= inside - {part(path)}
    assert circles(graph) == []


def test_no_two_files_of_the_package_have_the_same_name() -> None:
    names = Counter(path.stem for path in MODULES.values() if path.stem != "__init__")
    assert {name for name, files in names.items() if files > 1} <= SHARED_NAMES


@pytest.mark.parametrize(
    "path", sorted(RECORDER.rglob("*.py")), ids=lambda path: str(path.relative_to(RECORDER))
)
def test_the_injected_half_imports_only_itself_and_a_light_standard_library(path: Path) -> None:
    heavy = {"typing", "dataclasses", "logging", "subprocess", "json", "pathlib", "re", "inspect", "asyncio"}
    names = {name.split(".")[0] for name in imports(path)}
    own = {"perfwrap_recorder", "sitecustomize", "usercustomize", "torch", "nvtx"}
    assert not names & heavy
    assert names - own <= set(sys.stdlib_module_names) | {"__future__"}
