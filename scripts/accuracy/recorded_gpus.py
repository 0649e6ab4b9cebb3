"""Prints, for real recordings of GPUs, perfwrap's conclusions next to the statements of the recordings' sources.

The recordings are in PERFWRAP_SHARED_DATA, or in ``../shared/data`` next to the repository; their ``facts.json`` has
the labels. All of them are read as `perfwrap import` reads them: traces of torch.profiler, nsys exports and tables, ncu
tables, memory snapshots, logs of nvidia-smi, and call stacks.

Run: python scripts/accuracy/recorded_gpus.py [PART_OF_A_NAME...]
     --json FILE writes the conclusions; with --before FILE of an earlier version, --table prints both in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from perfwrap import units
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.sources import files

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", BESIDE))
MAX_BLAMES = 3
LABEL_WIDTH, SENTENCE_WIDTH = 100, 220
MAX_FINDINGS = 4
OF_IDLE = (
    *("gpu_waits_for_data", "launch_bound", "allocator_retries", "small_collectives", "gpu_waits_for_host"),
    *("host_sync_in_step", "explicit_synchronize", "python_overhead", "checkpoint_stall", "validation_share"),
    *("gc_pause", "recompilation", "program_profiler", "data_loader_single_process", "data_loader_wait"),
)
"""Rules whose shares explain idle time of a GPU; ``exposed_transfer`` does in part."""


def read(path: Path) -> Diagnosis | str:
    """Return the diagnosis of one recording, or why it could not be read."""
    timeline, (found,) = files.read([path], {})
    return diagnose(timeline) if found.read else found.problem


def conclusion(path: Path) -> dict[str, Any]:
    """Return perfwrap's conclusions about one recording; shares are of the recorded time."""
    diagnosis = read(path)
    if isinstance(diagnosis, str):
        return {"verdict": "not read", "sentence": diagnosis, "findings": {}, "gpus": {}, "unexplained": None}
    gpus = {gpu.device: {"busy": gpu.busy_share, "idle": gpu.idle} for gpu in diagnosis.gpu_activity}
    busy = [gpu["busy"] for gpu in gpus.values()]
    explained = sum(finding.share for finding in diagnosis.findings if finding.rule in OF_IDLE)
    return {
        "verdict": diagnosis.verdict.id,
        "share": diagnosis.verdict.share,
        "sentence": diagnosis.verdict.sentence,
        "findings": {finding.rule: finding.share for finding in reversed(diagnosis.findings)},
        "gpus": gpus,
        "unexplained": max(0.0, 1.0 - sum(busy) / len(busy) - explained) if busy else None,
    }


def printed(name: str, label: str, found: dict[str, Any]) -> None:
    """Print the conclusions about one recording."""
    print(f"{name}\n    label    {label[:LABEL_WIDTH]}")
    print(
        f"    verdict  {found['verdict']} {units.share(found.get('share'))}: {found['sentence'][:SENTENCE_WIDTH]}"
    )
    for device, gpu in found["gpus"].items():
        idle = ", ".join(
            f"{blame} {units.share(share)}" for blame, share in list(gpu["idle"].items())[:MAX_BLAMES]
        )
        print(f"    {device:<8} busy {units.share(gpu['busy'])}; idle: {idle or 'never'}")
    if found["unexplained"] is not None:
        print(f"    idle that no finding explains: {units.share(found['unexplained'])}")
    rules = [f"{rule} {units.share(share)}" for rule, share in reversed(found["findings"].items())]
    print(f"    found    {', '.join(rules) or 'nothing'}")


def row(about: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a row of the table: source, label, verdict and unexplained idle time before and after, findings."""
    source = about["source"]
    label = about["label"].split(". ")[0].removeprefix("SOURCE: ").removeprefix("OURS: ")
    cells = [
        f"{source['repo']}: {Path(source['path']).name}",
        " ".join(label.replace("|", "/").split())[:LABEL_WIDTH],
        *(_verdict(found) for found in (before, after)),
        " → ".join(_unexplained(found) for found in (before, after)),
        ", ".join(list(reversed(after["findings"]))[:MAX_FINDINGS]) or "none",
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(found: dict[str, Any]) -> str:
    share = found.get("share")
    return found["verdict"] + (f" {units.share(share)}" if share is not None else "")


def _unexplained(found: dict[str, Any]) -> str:
    return "-" if found["unexplained"] is None else units.share(found["unexplained"])


def main() -> int:
    """Print the conclusions; return 1 if there are no recordings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="parts of the names of recordings; default: all")
    parser.add_argument("--json", type=Path, help="write the conclusions to this file")
    parser.add_argument("--before", type=Path, help="such a file of an earlier version")
    parser.add_argument("--table", action="store_true", help="print a table in Markdown")
    options = parser.parse_args()
    labels = SHARED / "facts.json"
    if not labels.exists():
        print(f"No recordings at {SHARED}; set PERFWRAP_SHARED_DATA.", file=sys.stderr)
        return 1
    before = json.loads(options.before.read_text()) if options.before else {}
    found = {}
    for name, about in json.loads(labels.read_text(encoding="utf-8")).items():
        if options.names and not any(part in name for part in options.names):
            continue
        found[name] = conclusion(SHARED / name)
        if options.table:
            print(row(about, before.get(name, found[name]), found[name]))
        else:
            printed(name, about["label"], found[name])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
