"""The page in a real Chromium: of a real run, and of one whose every text attacks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec import structs
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis, LineAccount
from perfwrap.reports.html.html_page import write
from perfwrap.reports.terminal.activity import WORDS
from perfwrap.timeline.model import Timeline

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
LOOP = Path(__file__).resolve().parents[3] / "samples" / "loops" / "validation_inside_epoch.py"
PATIENCE_MS = 120_000
CHART = "document.getElementById('time-chart')"
DRAWN = "html[data-drawn]"
MS = 1_000_000

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="the page is driven with playwright")
if CHROMIUM is None:
    pytest.skip("there is no Chromium on this machine", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium of its own."""
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Opened:
    """A page, and what went wrong in it: messages, errors, dialogs, and requests for anything but itself."""

    def __init__(self, browser: Any, path: Path, width: int, shade: str, link: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=shade)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        own = path.as_uri()
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(dialog.message))
        self.page.on(
            "request",
            lambda request: None if request.url.startswith(own) else self.wrong.append(request.url[:200]),
        )
        self.page.goto(own + link, timeout=PATIENCE_MS)
        self.page.wait_for_selector(DRAWN, state="attached")

    def ask(self, script: str) -> Any:
        """Return what a script in the page answers."""
        return self.page.evaluate(script)

    def wait(self, condition: str) -> None:
        """Wait until a condition holds; the page's own policy forbids to have it watched inside."""
        for _ in range(PATIENCE_MS // 50):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never became true: {condition}")

    @property
    def range(self) -> tuple[float, float]:
        """What of the time is shown."""
        first, last = self.ask(f"{CHART}.layout.xaxis.range")
        return first, last


Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Return a function that opens a page; at the end nothing may have gone wrong in any."""
    found: list[Opened] = []

    def opened(path: Path, width: int = 1280, shade: str = "light", link: str = "") -> Opened:
        found.append(Opened(browser, path, width, shade, link))
        return found[-1]

    yield opened
    wrong = [text for page in found for text in page.wrong]
    for page in found:
        page.context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that ``perfwrap run`` writes of a real training script."""
    pytest.importorskip("torch", reason="the script trains with PyTorch")
    out = tmp_path_factory.mktemp("real") / "run"
    command = [sys.executable, "-m", "perfwrap", "run", "--sample", "50", "--out", str(out), "--"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, sys.executable, str(LOOP)], capture_output=True, text=True, env=environment, timeout=280
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines()[-1] == f"Report: {out}/report.html"
    return out / "report.html"


@pytest.fixture
def attacked(hostile: Timeline, tmp_path: Path) -> Path:
    """The report of a run whose every text attacks the page."""
    path = tmp_path / "report.html"
    write(diagnose(hostile, overview=True), hostile, path)
    return path


@pytest.fixture
def slow(run: Any, fill: Any, tmp_path: Path) -> Path:
    """The report of a run with a finding that can be clicked."""
    fill(run)
    timeline = run.read()
    path = tmp_path / "report.html"
    write(diagnose(timeline, overview=True), timeline, path)
    return path


@pytest.mark.torch
@pytest.mark.parametrize(("width", "shade"), [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")])
def test_a_real_run_is_drawn_without_an_error_or_a_request(
    real: Path, open_page: Open, width: int, shade: str
) -> None:
    page = open_page(real, width, shade)
    assert page.ask("document.documentElement.dataset.shade") == shade
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask("document.querySelector('#verdict h1').textContent.length") > 10
    widths = page.ask("[...document.querySelectorAll('#account .bar span')].map((one) => one.offsetWidth)")
    whole = page.ask("document.querySelector('#account .bar').offsetWidth")
    assert sum(widths) == pytest.approx(whole, abs=2 * len(widths))
    for chart in ("time-chart", "lane-chart"):
        assert page.ask(f"document.querySelectorAll('#{chart} .main-svg').length") > 0


@pytest.mark.parametrize("width", [1280, 400])
def test_hostile_texts_stay_texts(attacked: Path, open_page: Open, width: int) -> None:
    page = open_page(attacked, width)
    page.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.ask("window.owned") is None
    assert page.ask("document.querySelectorAll('img, iframe, object, embed, base, form, link').length") == 0
    links = page.ask("[...document.querySelectorAll('a')].map((one) => one.href || one.href.baseVal)")
    own = attacked.as_uri()
    assert [link for link in links if link and not link.startswith(own)] == []
    assert page.ask("document.documentElement.scrollWidth") <= width
    page.page.locator("#time-chart .nsewdrag").first.scroll_into_view_if_needed()
    box = page.page.locator("#time-chart .nsewdrag").first.bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 20)
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 25)
    page.page.wait_for_selector("#time-chart .hoverlayer *", state="attached")
    assert page.ask("document.querySelectorAll('a[target], a[*|href*=\"example\"]').length") == 0
    assert page.ask("window.owned") is None


def test_a_stretch_that_is_dragged_over_in_one_chart_is_shown_in_all(slow: Path, open_page: Open) -> None:
    page = open_page(slow)
    before = page.range
    page.page.locator("#time").scroll_into_view_if_needed()
    box = page.page.locator("#time-chart .nsewdrag").first.bounding_box()
    page.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 30)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 30, steps=5)
    page.page.mouse.up()
    page.wait(f"{CHART}.layout.xaxis.range[1] < {0.7 * before[1]}")
    first, last = page.range
    assert last - first == pytest.approx(0.2 * (before[1] - before[0]), rel=0.1)
    assert page.ask(f"new Set({CHART}.data.map((trace) => trace.xaxis)).size") == 1
    assert page.ask(f"new Set({CHART}.data.map((trace) => trace.yaxis)).size") > 2
    assert page.ask("location.hash").startswith("#time/")
    page.page.get_by_role("button", name="Whole run").click()
    assert page.range == pytest.approx(before)


def test_a_finding_leads_to_its_evidence_in_the_charts(slow: Path, open_page: Open) -> None:
    page = open_page(slow)
    page.page.locator("details.finding > summary").first.click()  # The first is open: this closes it.
    page.page.locator("details.finding > summary").first.click()
    assert page.page.locator("details.finding .body ul li").first.is_visible()
    page.page.get_by_text("Show in the charts").first.click()
    names = page.ask(f"{CHART}.data.map((trace) => trace.name)")
    assert "finding 1 explains" in names
    page.wait("Math.abs(document.getElementById('time').getBoundingClientRect().top) < 200")
    page.page.get_by_text("Show its most expensive step").first.click()
    page.wait("location.hash.startsWith('#steps/finding-0')")
    assert page.ask("document.querySelector('[data-lane=finding-0]').getAttribute('aria-pressed')") == "true"


@pytest.mark.parametrize(("width", "shade"), [(1280, "dark"), (400, "light")])
def test_one_step_is_drawn_line_by_line(
    diagnosis: Diagnosis, line_account: LineAccount, tmp_path: Path, open_page: Open, width: int, shade: str
) -> None:
    path = tmp_path / "report.html"
    write(replace(diagnosis, line_account=line_account), Timeline(), path)
    page = open_page(path, width, shade)
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert "[object" not in page.ask("document.getElementById('main').textContent")
    row = page.page.locator("#lines .heat .row.warm", has_text="loss = loss_function(model(images), labels)")
    assert "60 %" in row.inner_text()
    assert "75\xa0% of this line is its backward" in row.inner_text()
    widths = row.locator(".meter i").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().width)"
    )
    assert widths[1] == pytest.approx(3 * widths[0], rel=0.1)
    hidden = page.page.locator("#lines .heat details .row").first
    assert not hidden.is_visible()
    page.page.locator("#lines .heat details > summary").first.click()
    assert hidden.is_visible()
    tree = page.page.locator("#lines .tree")
    assert "2 × Block" in tree.inner_text()
    layers = tree.locator("details.layers > summary")
    layers.click()
    assert tree.locator("details.layers > .row").count() == 2
    assert page.ask("document.querySelectorAll('#line-chart .main-svg').length") > 0
    assert page.page.locator("nav a", has_text="Line by line").count() == 1


def test_the_documentation_of_a_rule_is_text(slow: Path, open_page: Open) -> None:
    page = open_page(slow)
    page.page.get_by_text("About this rule").first.click()
    shown = page.page.locator("details.finding").first.inner_text()
    assert "When it is wrong" in shown
    assert "[object" not in page.ask("document.getElementById('main').textContent")


def test_links_lead_to_a_finding_a_stretch_and_a_step(slow: Path, open_page: Open) -> None:
    whole = open_page(slow).range
    middle = (whole[0] + whole[1]) / 2
    assert open_page(slow, link=f"#time/{middle}/{whole[1]}").range == pytest.approx((middle, whole[1]))
    page = open_page(slow, link="#steps/median")
    assert page.ask("document.querySelector('[data-lane=median]').getAttribute('aria-pressed')") == "true"
    page = open_page(slow, link="#finding-data_loader_single_process")
    assert page.ask("document.getElementById('finding-data_loader_single_process').open") is True
    open_page(slow, link="#time/%E0%A4%A/x")


def test_the_first_finding_is_on_the_first_screen_with_its_evidence_beside_its_edit(
    slow: Path, open_page: Open
) -> None:
    page = open_page(slow)
    edit, evidence = (
        page.page.locator(f"details.finding .{part}").first.bounding_box() for part in ("mend", "evidence")
    )
    assert evidence["y"] == pytest.approx(edit["y"])
    assert evidence["x"] > edit["x"] + edit["width"]
    assert max(box["y"] + box["height"] for box in (edit, evidence)) <= 900
    narrow = open_page(slow, width=400)
    edit, evidence = (
        narrow.page.locator(f"details.finding .{part}").first.bounding_box() for part in ("mend", "evidence")
    )
    assert evidence["y"] >= edit["y"] + edit["height"]


@pytest.mark.parametrize("width", [1280, 400])
def test_no_legend_is_on_a_title(run: Any, fill: Any, tmp_path: Path, open_page: Open, width: int) -> None:
    fill(run)
    timeline = run.read()
    diagnosis = diagnose(timeline, overview=True)
    assert diagnosis.overview is not None
    moments = [1_000 * MS + 100 * MS * number for number in range(len(WORDS) + 1)]
    states = pl.DataFrame({"start": moments[:-1], "end": moments[1:], "state": list(WORDS)})
    diagnosis = replace(diagnosis, overview=structs.replace(diagnosis.overview, gpu_states=states))
    write(diagnosis, timeline, tmp_path / "report.html")
    page = open_page(tmp_path / "report.html", width)
    boxes = (
        "[...document.querySelectorAll('#time-chart SELECTOR')].map((one) => one.getBoundingClientRect())"
        ".map(({left, right, top, bottom}) => [left, right, top, bottom])"
    )
    titles, legends = (page.ask(boxes.replace("SELECTOR", name)) for name in (".annotation-text", ".traces"))
    assert len(titles) > 2
    assert len(legends) >= len(WORDS)
    for left, right, top, bottom in titles:
        over = [
            one for one in legends if one[0] < right and left < one[1] and one[2] < bottom and top < one[3]
        ]
        assert over == []


def test_rules_that_could_not_be_checked_are_together_by_their_reason(slow: Path, open_page: Open) -> None:
    page = open_page(slow)
    rows = page.ask(
        "[...document.querySelectorAll('#facts details')].find((one) => one.innerText.includes('were not checked'))"
        ".querySelectorAll('tbody tr').length"
    )
    reported = page.page.get_by_text("Rules that were not checked").inner_text()
    assert 1 < rows < int(reported.partition("(")[2].rstrip(")"))
    reasons = page.ask(
        "[...document.querySelectorAll('#facts tbody tr td:nth-child(2)')].map((one) => one.textContent)"
    )
    assert len(reasons) >= len(set(reasons)) >= rows


def test_keys_zoom_change_the_shade_and_explain_themselves(slow: Path, open_page: Open) -> None:
    page = open_page(slow)
    whole = page.range
    page.page.keyboard.press("+")
    assert page.range[1] - page.range[0] == pytest.approx((whole[1] - whole[0]) / 2)
    page.page.keyboard.press("0")
    assert page.range == pytest.approx(whole)
    page.page.keyboard.press("j")
    assert page.ask("document.activeElement.closest('details.finding') !== null") is True
    page.page.keyboard.press("?")
    assert page.page.locator("#help").is_visible()
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("d")
    page.page.keyboard.press("d")
    assert page.ask("document.documentElement.dataset.shade") == "dark"


def test_on_paper_all_findings_are_open_and_light(slow: Path, open_page: Open, tmp_path: Path) -> None:
    page = open_page(slow, shade="dark")
    page.ask(
        "window.addEventListener('beforeprint', () => { window.wide = "
        "Math.max(...[...document.querySelectorAll('.chart')].map((one) => one.layout.width)); })"
    )
    page.page.pdf(path=str(tmp_path / "report.pdf"))
    assert page.ask("window.wide") <= 700
    assert page.ask("[...document.querySelectorAll('details.finding')].every((one) => one.open)") is True
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
