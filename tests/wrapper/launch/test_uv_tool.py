from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from perfwrap.launch import uv_tool

OWN = str(Path(sys.executable).parent)
THEIRS = os.pathsep.join(["/theirs/bin", "/usr/bin"])
ADDED = {"UV": "/usr/bin/uv", "PATH": os.pathsep.join([OWN, THEIRS])}


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the environment of a tool."""
    monkeypatch.setattr(uv_tool, "find_spec", lambda name: None if name == "torch" else find_spec(name))


def test_the_command_finds_the_python_that_it_finds_without_perfwrap() -> None:
    assert uv_tool.without_tool(ADDED) == {"UV": "/usr/bin/uv", "PATH": THEIRS}
    other = {**ADDED, "VIRTUAL_ENV": "/theirs"}
    assert uv_tool.without_tool(other) == {**other, "PATH": THEIRS}


@pytest.mark.parametrize(
    "environment",
    [
        {"PATH": ADDED["PATH"]},
        {"UV": "/usr/bin/uv", "PATH": THEIRS},
        {**ADDED, "VIRTUAL_ENV": sys.prefix},
        {"UV": "/usr/bin/uv"},
    ],
    ids=["without uv", "not first", "uv run or activated", "no PATH"],
)
def test_any_other_environment_stays(environment: dict[str, str]) -> None:
    assert uv_tool.without_tool(environment) == environment


def test_a_tool_with_pytorch_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv_tool, "find_spec", lambda name: object())
    assert uv_tool.without_tool(ADDED) == ADDED
