"""A running job on one screen: verdict so far, steps, where their time goes, GPUs, processes, what is missing."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TypeAlias

from msgspec import Struct

from perfwrap import units
from perfwrap.live.devices import GpuNow, ProcessNow
from perfwrap.live.view import Progress, Scene, View
from perfwrap.reports.terminal.page import Page
from perfwrap.timeline.notebook_cells import at_line

Line: TypeAlias = tuple[tuple[str, str], ...]
"""Pieces of text with their styles."""

LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_.:-=+*#"
CEILING = 4
"""Steps longer than this many medians are drawn with that height, so that one step does not flatten all others."""
LABEL = 7
"""Columns for the label of a line."""
WHO = 24
"""Columns for the name of a process."""
PER_CENT = 100
MIN_LINE_SHARE = 0.01
"""Lines with a smaller share of the loop are not shown."""
WHOLE = 1000
"""Shares are rounded to tenths of a per cent, which sum to 100.0 %."""
UNLIMITED = 10_000
"""Lines of a page that is not a screen."""


class Section(Struct, frozen=True):
    """Some lines of which at least ``minimum`` are shown; ``what`` names those that are not."""

    lines: list[Line]
    minimum: int
    what: str = "more"


def draw(scene: Scene, folder: Path, page: Page, height: int = UNLIMITED, foot: str = "") -> None:
    """Draw the scene onto the page, on ``height`` lines at most; ``foot`` is on the last one."""
    view = scene.view
    sections = [
        Section(_head(scene, page), 2),
        Section(_stall(scene, page), 3),
        Section(_verdict(scene, page), 2),
        Section(_steps(scene, page), 2),
        Section(_run_so_far(view, page), 1),
        Section(_account(view, page), 4, "smaller parts"),
        Section(_lines(scene, page), 2, "cheaper lines"),
        Section(_labelled("GPU", [_gpu(gpu, page) for gpu in view.gpus]), 1, "more GPUs"),
        Section(
            _labelled("Procs", [_process(one, view, page) for one in view.processes]), 1, "more processes"
        ),
        Section(_labelled("Note", [_problem(text, page) for text in view.problems]), 1, "more notes"),
        Section(
            [
                (
                    (page.fitted(f"Run folder: {folder}", page.width - len(foot) - 3), "dim"),
                    ("   ", ""),
                    (foot, ""),
                )
            ],
            1,
        ),
    ]
    _print([section for section in sections if section.lines], page, height)


def _print(sections: list[Section], page: Page, height: int) -> None:
    """Print the sections, with blank lines between them where there is room for all that."""
    gaps = len(sections) - 1
    shown = [min(section.minimum, len(section.lines)) for section in sections]
    roomy = sum(len(section.lines) for section in sections) + gaps <= height
    room = height - sum(shown) - (gaps if roomy else 0)
    while room > 0 and any(
        count < len(section.lines) for count, section in zip(shown, sections, strict=True)
    ):
        for number, section in enumerate(sections):
            if room > 0 and shown[number] < len(section.lines):
                shown[number] += 1
                room -= 1
    printed = [
        line for count, section in zip(shown, sections, strict=True) for line in _cut(section, count, roomy)
    ]
    lines = printed[: -1 if roomy else None]
    if len(lines) > height:
        lines = lines[: height - 1] + lines[-1:]  # how to quit is always shown
    for line in lines[:height]:
        page.line(*_clipped(line, page))


def _clipped(line: Line, page: Page) -> Line:
    """Return a line that is no longer than the page is wide."""
    pieces, room = [], page.width
    for text, style in line:
        pieces.append((page.clipped(text, room) if room > 0 else "", style))
        room -= len(pieces[-1][0])
    return tuple(pieces)


def _cut(section: Section, count: int, roomy: bool) -> list[Line]:
    """Return so many lines of a section; the last one counts those that are not shown."""
    left = len(section.lines) - count
    lines = section.lines[:count]
    if left and count > 1 and section.what != "more":
        lines = [
            *section.lines[: count - 1],
            ((f"{'':{LABEL}}and {units.count(left + 1)} {section.what}", "dim"),),
        ]
    return [*lines, *([()] if roomy else [])]


def _head(scene: Scene, page: Page) -> list[Line]:
    """Return the command and the state of the run."""
    words = [str(word) for word in scene.run.get("command") or ()]
    command = shlex.join([PurePath(words[0]).name, *words[1:]]) if words else ""
    return [
        (("perfwrap top  ", "bold"), (page.fitted(command, page.width - 14), "")),
        ((page.clipped(_standing(scene), page.width), _standing_style(scene)),),
    ]


def _stall(scene: Scene, page: Page) -> list[Line]:
    """Return the stall."""
    if scene.stall is None:
        return []
    sentence = scene.stall[:1].upper() + scene.stall[1:]
    return [((text, "bold red"),) for text in _wrapped(f"Stalled: {sentence}.", page)]


def _standing(scene: Scene) -> str:
    """Return the state of the run in words."""
    elapsed, quiet = units.duration(scene.elapsed_ns), units.duration(scene.state.quiet_ns)
    if scene.state.word == "deleted":
        return "The run folder was deleted; this is the last state."
    if scene.state.word == "lost":
        return "The run is over, but no end was recorded: perfwrap was killed."
    if scene.state.word == "ended":
        how = scene.run["exit"]
        end = f"killed by signal {how['signal']}" if "signal" in how else f"exit code {how.get('code')}"
        return f"ended after {elapsed}: {end}"
    if scene.state.word == "quiet":
        return f"running for {elapsed}, but nothing was recorded for {quiet}"
    if scene.state.word == "starting":
        return f"started {elapsed} ago; nothing was recorded yet"
    return f"running for {elapsed}"


def _standing_style(scene: Scene) -> str:
    """Return the colour for the state of the run."""
    how = scene.run.get("exit")
    failed = isinstance(how, dict) and how.get("code") != 0
    if scene.state.word in ("deleted", "lost") or failed:
        return "red"
    return "yellow" if scene.state.word == "quiet" else "dim"


def _verdict(scene: Scene, page: Page) -> list[Line]:
    """Return the verdict, and which steps it is about."""
    if scene.verdict is None:
        return [(("No verdict yet: no training was seen so far.", "dim"),)] if not scene.state.over else []
    about = "" if scene.state.over else "So far: "
    if scene.view.recent_steps is not None:
        about = f"Last {units.counted(scene.view.recent_steps, 'step')}: "
    return [((text, "bold"),) for text in _wrapped(about + scene.verdict.sentence, page)]


def _wrapped(text: str, page: Page) -> list[str]:
    """Return the text in lines."""
    return textwrap.wrap(page.clipped(text, 12 * page.width), page.width)


def _steps(scene: Scene, page: Page) -> list[Line]:
    """Return the progress of the run, its speed, and the trend."""
    view, progress = scene.view, scene.view.progress
    if not progress.steps:
        return []
    lines: list[Line] = [
        (("Steps", "bold"), (f"  {_far(progress, scene.state.over)}", "")),
        ((f"{'':{LABEL}}{_fast(view)}", ""),),
    ]
    if len(view.trend) > 1:
        drawn = sparkline(view.trend, page.width - LABEL, page.ascii_only)
        lines.append((("Trend", "bold"), ("  ", ""), (drawn, "cyan")))
    return lines


def _far(progress: Progress, over: bool) -> str:
    """Return e.g. ``12,345 so far, epoch 3, batch 120 of 500``."""
    steps = f"about {units.count(progress.steps)}" if progress.estimated else units.count(progress.steps)
    parts = [steps if over else f"{steps} so far"]
    if progress.epoch is not None:
        parts.append(f"epoch {units.count(progress.epoch)}")
        if progress.batch is not None:
            # The number of batches of the previous epoch; a longer epoch has more.
            known = progress.batches is not None and progress.batches >= progress.batch
            whole = f" of {units.count(progress.batches or 0)}" if known else ""
            parts.append(f"batch {units.count(progress.batch)}{whole}")
    return ", ".join(parts)


def _fast(view: View) -> str:
    """Return the step time."""
    if view.median_ns is None:
        return "no step was recorded in detail yet"
    what = f"{units.counted(view.steady_steps, 'steady step')}: " if view.recent_steps is None else ""
    speed = f", {units.rate(view.samples_per_s, 'samples')}" if view.samples_per_s else ""
    return f"{what}median {units.duration(view.median_ns, 3)}, p99 {units.duration(view.p99_ns, 3)}{speed}"


def sparkline(values: Sequence[float], columns: int, ascii_only: bool) -> str:
    """Return the values as bars of one line, from 0 to the largest; neighbours share a column by their mean."""
    levels = ASCII_LEVELS if ascii_only else LEVELS
    count = min(columns, len(values))
    edges = [round(number * len(values) / count) for number in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    top = min(max(means), CEILING * sorted(means)[len(means) // 2]) or 1.0
    return "".join(levels[min(len(levels) - 1, int(mean / top * len(levels)))] for mean in means)


def _account(view: View, page: Page) -> list[Line]:
    """Return the parts of a step as bars."""
    tenths = units.apportion({part: float(value) for part, value in view.account.items()}, WHOLE)
    return [
        (
            ("Time   " if not number else " " * LABEL, "bold"),
            (f"{part:<11}{value / 10:>6.1f} %  ", ""),
            (page.bar(value / WHOLE, page.width - LABEL - 21), "cyan"),
        )
        for number, (part, value) in enumerate(
            (part, value) for part, value in sorted(tenths.items(), key=lambda item: -item[1]) if value
        )
    ]


def _run_so_far(view: View, page: Page) -> list[Line]:
    """Return how the whole run divides so far, on one or two lines."""
    if view.run_so_far is None:
        return []
    parts = {part: float(ns) for part, ns in view.run_so_far.parts.items()}
    shares = units.apportion(parts, PER_CENT)
    words = ", ".join(f"{part} {share} %" for part, share in shares.items() if share)
    texts = textwrap.wrap(words, page.width - LABEL)
    return _labelled("Run", [(text, "") for text in texts])


def _lines(scene: Scene, page: Page) -> list[Line]:
    """Return the costliest lines of the training loop, relative to the folder of the command."""
    directory = str(scene.run.get("cwd") or "").rstrip("/") + "/"
    found = []
    for one in scene.view.lines:
        if one.share < MIN_LINE_SHARE:
            break
        place = at_line(one.line.file.removeprefix(directory), one.line.line)
        until = f" to {one.until_line}" if one.until_line and one.until_line != one.line.line else ""
        function = f"  {one.line.function}" if one.line.function not in ("", "<module>") else ""
        text = f"{one.part:<11}{units.share(one.share):>8}  {place}{until}{function}"
        found.append((page.clipped(text, page.width - LABEL), ""))
    return _labelled("Lines", found)


def _labelled(label: str, texts: list[tuple[str, str]]) -> list[Line]:
    """Return styled texts as lines, with a label before the first one."""
    return [
        ((f"{'' if number else label:<{LABEL}}", "bold"), (text, style))
        for number, (text, style) in enumerate(texts)
    ]


def _gpu(gpu: GpuNow, page: Page) -> tuple[str, str]:
    """Return one GPU on one line."""
    figures = gpu.figures
    known = [
        f"{units.share(figures.utilization)} busy" if figures.utilization is not None else "",
        f"SMs {units.share(figures.activity['sm'])}" if "sm" in figures.activity else "",
        f"{units.size(figures.memory_used_bytes)} of {units.size(figures.memory_total_bytes)}"
        if figures.memory_used_bytes is not None
        else "",
        f"throttled: {', '.join(figures.throttle_reasons)}" if figures.throttle_reasons else "",
        f"{units.number(figures.power_watts, 3)} W" if figures.power_watts is not None else "",
        f"{units.number(gpu.temperature_celsius, 3)} C" if gpu.temperature_celsius is not None else "",
    ]
    # The model's name comes last: it is usually the same for all GPUs, and is cut first.
    model, _, entity = figures.name.removesuffix(")").rpartition(" (")
    text = f"{entity}: " + ", ".join(word for word in [*known, model] if word)
    return page.clipped(text, page.width - LABEL), ""


def _process(one: ProcessNow, view: View, page: Page) -> tuple[str, str]:
    """Return one process on one line; with several training processes, each has its step time."""
    cores = "unknown" if one.cpu_cores is None else f"{units.number(one.cpu_cores)} cores"
    median = {name: median for name, _, median in view.trainers}.get(one.who)
    step = f"  {units.duration(median, 3)}/step" if one.trains and len(view.trainers) > 1 else ""
    text = (
        f"{page.clipped(one.who, WHO):<{WHO}} {one.pid:>8}  {cores:>11}  {units.size(one.rss_bytes):>8}{step}"
    )
    return page.clipped(text, page.width - LABEL), "bold" if one.trains else ""


def _problem(text: str, page: Page) -> tuple[str, str]:
    """Return one note on one line."""
    return page.clipped(text, page.width - LABEL), "yellow"
