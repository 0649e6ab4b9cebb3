"""What is released agrees with itself: versions, dependencies of the recipe, and the workflow that publishes."""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import perfwrap
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)\s*(?P<version>[><=].*)?$")


@pytest.fixture
def project(repository: Path) -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    with (repository / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def recipe_lines(repository: Path, section: str) -> list[str]:
    """Return the entries of a list of the recipe."""
    text = (repository / "scripts" / "release" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    after = text.partition(f"\n  {section}:\n")[2]
    entries = takewhile(lambda line: line.startswith("    - "), after.splitlines())
    return [line[6:] for line in entries if not line.startswith("    - _")]


def test_the_version_stands_in_one_form_everywhere(project: dict[str, Any], repository: Path) -> None:
    version = project["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert perfwrap.__version__ == version
    recipe = (repository / "scripts" / "release" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{version}"' in recipe
    assert f"## {version} " in (repository / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_recipe_requires_what_the_wheel_requires(project: dict[str, Any], repository: Path) -> None:
    wanted = {}
    for line in project["dependencies"]:
        found = REQUIREMENT.match(line.partition(";")[0].strip())
        assert found is not None
        wanted[found["name"]] = found["version"]
    run = {
        found["name"]: found["version"]
        for line in recipe_lines(repository, "run")
        if (found := REQUIREMENT.match(line)) and found["name"] != "python"
    }
    assert run == wanted


def supported_minors(project: dict[str, Any]) -> set[int]:
    """Return the minor versions of Python 3 that the classifiers name."""
    found = (
        re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", line) for line in project["classifiers"]
    )
    return {int(each[1]) for each in found if each}


def test_every_python_that_is_supported_has_a_classifier(project: dict[str, Any]) -> None:
    minors = supported_minors(project)
    lowest = int(project["requires-python"].rpartition(".")[2])
    assert minors == set(range(lowest, max(minors) + 1))
    assert max(minors) >= 14


def test_a_release_installs_the_wheel_into_every_python_that_is_supported(
    project: dict[str, Any], repository: Path
) -> None:
    workflow = (repository / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    pythons = re.search(r"check_wheel dist (.*)", workflow)
    installed = re.search(r"python-version: \|\n((?: +3\.\d+\n)+)", workflow)
    assert pythons and installed
    wanted = {f"3.{minor}" for minor in supported_minors(project)}
    assert {word.removeprefix("python") for word in pythons[1].split()} == wanted
    assert set(installed[1].split()) == wanted


def test_what_is_published_was_checked_before(repository: Path) -> None:
    workflow = (repository / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert workflow.index("scripts/release/check_wheel dist") < workflow.index("gh-action-pypi-publish")
    assert "needs: build" in workflow
