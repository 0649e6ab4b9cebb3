from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from perfwrap.diagnosis.engine import diagnose
from perfwrap.reports.html.html_page import page, write
from perfwrap.timeline.model import Timeline

MS = 1_000_000
MEGABYTE = 1_000_000


class Elements(HTMLParser):
    """Notes every element and what the scripts hold."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[-1] += data


def parsed(timeline: Timeline) -> tuple[str, Elements]:
    text = page(diagnose(timeline, overview=True), timeline)
    elements = Elements()
    elements.feed(text)
    return text, elements


def test_a_hostile_run_adds_no_element_to_the_page(run: Any, hostile: Timeline) -> None:
    _, attacked = parsed(hostile)
    _, empty = parsed(Timeline())
    assert [tag for tag, _ in attacked.elements] == [tag for tag, _ in empty.elements]
    assert not any(name.startswith("on") for _, attributes in attacked.elements for name in attributes)


def test_the_page_asks_no_network_and_runs_only_its_own_scripts(hostile: Timeline) -> None:
    _, found = parsed(hostile)
    asked = [attributes for _, attributes in found.elements if "src" in attributes]
    assert asked == []
    assert all(
        (attributes.get("href") or "#").startswith("#")
        for tag, attributes in found.elements
        if tag in ("a", "link")
    )
    policy = next(
        str(attributes["content"])
        for tag, attributes in found.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    hashes = set(re.findall(r"'sha256-([^']+)'", policy))
    scripts = [
        script
        for script, (_, attributes) in zip(
            found.scripts, [one for one in found.elements if one[0] == "script"], strict=True
        )
        if attributes.get("type") != "application/json"
    ]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts} == hashes


def test_the_scripts_never_make_elements_from_text() -> None:
    import perfwrap.reports.html.html_page as module

    for script in module.SCRIPTS:
        text = (module.ASSETS / script).read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
            assert word not in text, f"{script}: {word}"
    assert {path.name for path in module.ASSETS.glob("*.js")} == set(module.SCRIPTS)


def test_a_run_of_a_hundred_thousand_steps_with_eight_gpus_fits_into_eight_megabytes(
    run: Any, fill: Any
) -> None:
    journal = fill(run, steps=100_000)
    for gpu in range(8):
        for metric in (
            "utilization_share",
            "power_watts",
            "sm_clock_hertz",
            "memory_used_bytes",
            "sm_activity_share",
        ):
            for moment in range(20_000):
                journal.sample(f"gpu/{gpu}", metric, moment % 97 / 97, (1_000 + 100 * moment) * MS)
    timeline = run.read()
    text, _ = parsed(timeline)
    assert len(text.encode()) < 8 * MEGABYTE


def test_the_file_is_there_whole_and_nothing_is_left_beside_it(run: Any, tmp_path: Path, fill: Any) -> None:
    fill(run)
    timeline = run.read()
    folder = tmp_path / "made"
    folder.mkdir()
    write(diagnose(timeline, overview=True), timeline, folder / "report.html")
    assert [path.name for path in folder.iterdir()] == ["report.html"]
    assert (folder / "report.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_a_lone_surrogate_in_a_name_does_no_harm(run: Any, fill: Any) -> None:
    fill(run)
    run.folder.write_manifest({"command": ["python", "\udcff.py"]})
    timeline = run.read()
    text, _ = parsed(timeline)
    text.encode("utf-8")
    assert "\\udcff" in text
