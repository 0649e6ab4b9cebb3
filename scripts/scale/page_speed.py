"""Measure how long report.html of a run takes to open in Chromium, compared with a page that only loads plotly.

    python scripts/scale/page_speed.py RUN [ROUNDS]

The pages alternate, so that a busy machine slows both. Prints for each the time to the first screen, to
the last chart, and the processor time of the page's main thread, and the ratio of the latter.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfwrap.run_folder import RunFolder
from playwright.sync_api import sync_playwright
from plotly.offline import get_plotlyjs

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PATIENCE_MS = 300_000
BARE = """<!DOCTYPE html><div id="chart"></div><script>{plotly}</script><script>
Plotly.newPlot('chart', [{{x: [1, 2], y: [1, 2]}}]);
document.documentElement.dataset.drawn = String(Math.round(performance.now()));
</script>"""
FIRST = "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)[0]"


def opened(browser: Any, path: Path) -> tuple[float, float, float]:
    """Return milliseconds to the first screen and to the last chart, and seconds of processor time."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.resolve().as_uri(), timeout=PATIENCE_MS)
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=PATIENCE_MS)
    metrics = {
        metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]
    }
    drawn = float(page.evaluate("document.documentElement.dataset.drawn"))
    first = float(page.evaluate(FIRST) or drawn)
    context.close()
    return first, drawn, metrics["ThreadTime"]


def main() -> None:
    """Open both pages alternately and print the medians."""
    report = RunFolder(Path(sys.argv[1])).report
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    bare = Path(tempfile.mkdtemp()) / "bare.html"
    bare.write_text(BARE.format(plotly=get_plotlyjs().replace("</script", "<\\/script")), encoding="utf-8")
    times: dict[Path, list[tuple[float, float, float]]] = {bare: [], report: []}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(rounds):
            for path, found in times.items():
                found.append(opened(browser, path))
        browser.close()
    medians = {
        path: [statistics.median(column) for column in zip(*rows, strict=True)]
        for path, rows in times.items()
    }
    for path, (first, drawn, cpu) in medians.items():
        size = path.stat().st_size / 1e6
        print(
            f"{path.name}: {size:.1f} MB, first screen {first:.0f} ms, charts {drawn:.0f} ms, {cpu:.2f} s of processor"
        )
    print(f"processor time: {medians[report][2] / medians[bare][2]:.2f} times that of plotly alone")


if __name__ == "__main__":
    main()
