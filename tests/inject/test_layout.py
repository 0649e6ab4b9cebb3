"""The recorder's modules import each other in one direction, and its folders are small."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

INJECT = Path(__file__).resolve().parents[2] / "inject"
MAX_FILES = 25


def module_of(path: Path) -> str:
    parts = path.relative_to(INJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in INJECT.rglob("*.py")}


def imports_of(module: str) -> set[str]:
    """Return the modules of the recorder that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else str(node.module))
    return found & MODULES.keys()


def test_no_import_circle_exists_deferred_imports_included() -> None:
    left = {module: imports_of(module) for module in MODULES}
    while free := {module for module, needs in left.items() if not needs & left.keys()}:
        left = {module: needs for module, needs in left.items() if module not in free}
    assert not left


def test_packages_hold_no_code_but_tables() -> None:
    importing = {path.parent.name for path in INJECT.rglob("__init__.py") if imports_of(module_of(path))}
    assert importing == {"changes"}


def test_file_names_are_unique() -> None:
    names = Counter(path.name for path in MODULES.values() if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name
)
def test_no_folder_has_too_many_files(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= MAX_FILES
