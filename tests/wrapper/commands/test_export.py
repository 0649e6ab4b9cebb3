"""`perfwrap export`: what it refuses, and its examples in docs/exporting.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from perfwrap.commands.export import EXPORTERS, export
from perfwrap.errors import PerfwrapError
from perfwrap.exporters.metrics import METRICS
from perfwrap.exporters.naming import named

MODULES = {"otlp": "opentelemetry", "prometheus": "prometheus_client"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "Choose where to"),
        ({"to": "excel"}, "does not take 'excel'"),
        ({"to": "prometheus", "url": "http://x"}, "prometheus does not take --url"),
        ({"to": "otlp", "url": "http://x", "out": Path("y")}, "--url and --out"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(options: dict[str, Any], words: str) -> None:
    needed = MODULES.get(options.get("to", ""))
    if needed and find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    with pytest.raises(PerfwrapError, match=words) as raised:
        export("latest", **options)
    assert raised.value.hint


def test_a_missing_library_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "perfwrap.exporters.prometheus", raising=False)
    with pytest.raises(PerfwrapError, match="needs a library that is not installed") as raised:
        export("latest", to="prometheus")
    assert raised.value.hint == f"Install it: {sys.executable} -m pip install 'perfwrap[prometheus]'"


def examples(repository: Path) -> list[list[str]]:
    """Return the documented commands that write on this machine."""
    text = (repository / "docs" / "exporting.md").read_text(encoding="utf-8")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("perfwrap export") and "--url" not in line]


def test_the_documented_examples_do_what_they_say(
    repository: Path, recorded_document: Any, tmp_path: Path
) -> None:
    folder = recorded_document.folder()
    (tmp_path / "perfwrap-runs").mkdir()
    folder.rename(tmp_path / "perfwrap-runs" / "before")
    said = examples(repository)
    assert {words[words.index("--to") + 1] for words in said} == set(EXPORTERS)
    ran = 0
    for words in said:
        to = words[words.index("--to") + 1]
        if find_spec(MODULES.get(to, to)) is None:
            continue
        ended = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=250
        )
        assert ended.returncode == 0, ended.stderr
        place = re.search(r"^Written: (?:run \w+ in )?(\S+)", ended.stdout)
        assert place is not None
        assert (tmp_path / place[1]).exists()
        ran += 1
    if not ran:
        pytest.skip("none of the libraries is installed")


def test_the_documentation_names_every_metric(repository: Path) -> None:
    text = (repository / "docs" / "exporting.md").read_text(encoding="utf-8")
    assert [named(metric) for metric in METRICS if f"`{named(metric)}`" not in text] == []
