"""A flame graph as an SVG picture without scripts: of the inspected step, or else of the thread sampled most often.

The root is at the top. The width of a box is its share, its tooltip has the whole name and the amount. Colours of an
inspected step are those of its parts; other boxes have a colour by the name of their file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import PurePath
from xml.sax.saxutils import escape  # nosec B406 # it writes XML and reads none

from perfwrap import units
from perfwrap.exporters.export_model import NANOSECONDS, Destination, Exported, StackFrame, StackProfile
from perfwrap.exporters.viewer_file import demand_profiles, write_file
from perfwrap.shown_text import visible

TAKES = frozenset({"out"})
FILE = "flamegraph.svg"
WIDTH, ROW, TOP, CHARACTER = 1200.0, 17, 46, 6.6
MIN_WIDTH = 0.4
"""Narrower boxes are left out, with what is below them."""
DEEPEST = 100
PARTS = {
    "forward": "#5b8def",
    "backward": "#8c6fd6",
    "optimizer": "#3aa981",
    "python": "#e0a13c",
    "data": "#d9604c",
}
Path = tuple[StackFrame, ...]


def export(run: Exported, where: Destination) -> list[str]:
    """Write the picture."""
    profile = demand_profiles(run)[0]
    return [write_file(run, where, FILE, picture(profile, run).encode("utf-8", "replace"))]


def picture(profile: StackProfile, run: Exported) -> str:
    """Return the SVG document."""
    boxes = list(_boxes(profile))
    depth = max((level for level, *_ in boxes), default=0)
    height = TOP + (depth + 1) * ROW + 8
    title = f"{run.name}: {profile.name}, {_amount(profile, profile.total)}"
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" width="{WIDTH:.0f}" '
        f'height="{height}" font-family="ui-monospace, monospace" font-size="11">',
        f"<title>{_shown(title)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="8" y="18" font-size="14" fill="#1a1a1a">{_shown(title)}</text>',
        f'<text x="8" y="36" fill="#555555">{_shown(_clipped(run.sentence, WIDTH - 16))}</text>',
    ]
    lines += [_drawn(profile, *box) for box in boxes]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _boxes(profile: StackProfile) -> Iterator[tuple[int, float, float, StackFrame, int]]:
    """Yield level, left edge, width, frame and weight of each box, below the whole."""
    weights: dict[Path, int] = {}
    for frames, weight in profile.stacks:
        for level in range(1, min(len(frames), DEEPEST) + 1):
            weights[frames[:level]] = weights.get(frames[:level], 0) + weight
    total = profile.total
    below: dict[Path, list[Path]] = {}
    for path in weights:
        below.setdefault(path[:-1], []).append(path)
    yield 0, 0.0, WIDTH, StackFrame("all"), total
    waiting: list[tuple[Path, float]] = [((), 0.0)]
    while waiting:
        above, left = waiting.pop()
        for path in sorted(below.get(above, ()), key=lambda each: (-weights[each], each[-1].function)):
            width = WIDTH * weights[path] / total
            if width < MIN_WIDTH:
                break
            yield len(path), left, width, path[-1], weights[path]
            waiting.append((path, left))
            left += width


def _drawn(
    profile: StackProfile, level: int, left: float, width: float, frame: StackFrame, weight: int
) -> str:
    """Return one box with its name and its tooltip."""
    top = TOP + level * ROW
    name = _name(frame)
    amount = f"{_amount(profile, weight)}, {units.share(weight / profile.total)}"
    box = f'<rect x="{left:.2f}" y="{top}" width="{max(width - 0.6, 0.2):.2f}" height="{ROW - 1}" rx="1"'
    label = _clipped(name, width - 6)
    words = f'<text x="{left + 3:.2f}" y="{top + 12}" fill="#111111">{_shown(label)}</text>' if label else ""
    return f'<g><title>{_shown(f"{name}: {amount}")}</title>{box} fill="{_colour(frame, level)}"/>{words}</g>'


def _name(frame: StackFrame) -> str:
    """Return e.g. ``train (train.py:31)``."""
    file = PurePath(frame.file).name
    return f"{frame.function} ({file}:{frame.line})" if file else frame.function


def _colour(frame: StackFrame, level: int) -> str:
    """Return the colour of a box."""
    if level == 0:
        return "#dddddd"
    if not frame.file and frame.function in PARTS:
        return PARTS[frame.function]
    hue = zlib.crc32((frame.file or frame.function).encode("utf-8", "replace")) % 60
    return f"hsl({hue}, 70%, {72 + level % 2 * 4}%)"


def _amount(profile: StackProfile, weight: int) -> str:
    """Return nanoseconds or samples in words."""
    if profile.unit == NANOSECONDS:
        return units.duration(weight, 3)
    return units.counted(weight, "sample")


def _clipped(text: str, width: float) -> str:
    """Return as much of a text as fits a width in pixels."""
    most = int(width / CHARACTER)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…" if most >= 4 else ""


def _shown(text: str) -> str:
    """Return a text that is safe in XML."""
    return escape(visible(text), {'"': "&quot;"})
