"""A file for speedscope.app, with a profile for the inspected step and one for each sampled thread.

Format: www.speedscope.app/file-format-schema.json. Samples stay in the order of time.
"""

from __future__ import annotations

import json
from typing import Any

from perfwrap.exporters.export_model import NANOSECONDS, Destination, Exported, StackFrame
from perfwrap.exporters.viewer_file import demand_profiles, write_file

TAKES = frozenset({"out"})
FILE = "stacks.speedscope.json"
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
UNITS = {NANOSECONDS: "nanoseconds"}
"""Speedscope's words; samples have no unit."""


def export(run: Exported, where: Destination) -> list[str]:
    """Write the file."""
    text = json.dumps(document(run), ensure_ascii=False)
    line = write_file(run, where, FILE, text.encode("utf-8", "replace"))
    return [line, "Open it at https://www.speedscope.app, which reads it in the browser and sends nothing."]


def document(run: Exported) -> dict[str, Any]:
    """Return the document."""
    places: dict[StackFrame, int] = {}
    profiles = []
    for profile in demand_profiles(run):
        samples = [
            [places.setdefault(frame, len(places)) for frame in frames] for frames, _ in profile.stacks
        ]
        profiles.append(
            {
                "type": "sampled",
                "name": profile.name,
                "unit": UNITS.get(profile.unit, "none"),
                "startValue": 0,
                "endValue": profile.total,
                "samples": samples,
                "weights": [weight for _, weight in profile.stacks],
            }
        )
    return {
        "$schema": SCHEMA,
        "name": run.name,
        "exporter": f"perfwrap {run.version}".rstrip(),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in places]},
        "profiles": profiles,
    }


def _frame(frame: StackFrame) -> dict[str, Any]:
    """Return a frame; what is unknown is left out."""
    known = {"file": frame.file} if frame.file else {}
    return {"name": frame.function, **known, **({"line": frame.line} if frame.line else {})}
