"""Prints, for real recordings of GPUs, perfwrap's conclusions next to the statements of the recordings' sources.

The recordings are in PERFWRAP_SHARED_DATA, or in ``../shared/data`` next to the repository; their ``facts.json`` has
the labels. Run: python scripts/accuracy/recorded_gpus.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from perfwrap import units
from perfwrap.diagnosis.engine import diagnose
from perfwrap.errors import PerfwrapError
from perfwrap.sources.kineto import kineto_trace
from perfwrap.sources.nsys import nsys_export
from perfwrap.timeline.builder import TimelineBuilder

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", BESIDE))
MAX_BLAMES = 3
LABEL_WIDTH = 100


def conclusion(path: Path) -> list[str]:
    """Return perfwrap's conclusions about one recording, line by line."""
    builder = TimelineBuilder()
    (kineto_trace if path.parent.name == "kineto" else nsys_export).add(builder, path)
    diagnosis = diagnose(builder.build({}))
    lines = [f"verdict  {diagnosis.verdict.id} {units.share(diagnosis.verdict.share)}"]
    for gpu in diagnosis.gpu_activity:
        idle = ", ".join(
            f"{blame} {units.share(share)}" for blame, share in list(gpu.idle.items())[:MAX_BLAMES]
        )
        lines.append(f"{gpu.device:<8} busy {units.share(gpu.busy_share)}; idle: {idle or 'never'}")
    found = ", ".join(f"{finding.rule} {units.share(finding.share)}" for finding in diagnosis.findings)
    return [*lines, f"found    {found or 'nothing'}"]


def main() -> int:
    """Print the table; return 1 if there are no recordings."""
    labels = SHARED / "facts.json"
    if not labels.exists():
        print(f"No recordings at {SHARED}; set PERFWRAP_SHARED_DATA.", file=sys.stderr)
        return 1
    for name, about in json.loads(labels.read_text(encoding="utf-8")).items():
        if not name.startswith("kineto/") and ".sqlite" not in name:
            continue
        print(f"{name}\n    label    {about['label'][:LABEL_WIDTH]}")
        try:
            lines = conclusion(SHARED / name)
        except PerfwrapError as error:
            lines = [str(error)]
        print("\n".join(f"    {line}" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
