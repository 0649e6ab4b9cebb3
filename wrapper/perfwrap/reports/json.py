"""The diagnosis as ``diagnosis.json``: strict JSON.

Described in docs/diagnosis-json.md and, for programs, in diagnosis.schema.json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfwrap import units
from perfwrap.diagnosis.model import (
    Diagnosis,
    GpuFigures,
    GpuMemory,
    LineAccount,
    LineCost,
    OtherPrograms,
    RankFigures,
    Skew,
    WholeRun,
)
from perfwrap.private_files import replace_text
from perfwrap.reports.energy_json import energy, gpu_idle
from perfwrap.rules.model import Finding, Location, Option
from perfwrap.timeline.notebook_cells import cell_number, without_cell

FORMAT = 2
MAX_PACKAGES = 10
"""Version of the document. 1: first. Raised when a key goes or changes its meaning; new keys may come
without."""

SCHEMA = Path(__file__).with_name("diagnosis.schema.json")
"""The JSON Schema of the document."""

ACCOUNT_GRAIN = 2**13
"""Shares of the account are multiples of one over this power of two, so that their sum is exactly 1 in binary
floating point too, in any order of addition."""

NO_LINE = {"file": None, "line": None}
"""An unknown line."""

NUMBERS = re.compile(r"\[\n([-+0-9.eE,\s]+)\n\s*\]")
"""A list of numbers, each on a line of its own."""


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the whole document as plain values."""
    verdict, steps = diagnosis.verdict, diagnosis.steps
    return {
        "format": FORMAT,
        "verdict": {
            "id": verdict.id,
            "share": _share(verdict.share),
            "sentence": verdict.sentence,
            "confidence": verdict.confidence,
        },
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "would_not_help": [{"advice": each.advice, "why": each.why} for each in diagnosis.would_not_help],
        "outcomes": {
            outcome.rule: {"state": outcome.state, "why": outcome.why} for outcome in diagnosis.outcomes
        },
        "whole_run": _whole_run(diagnosis.whole_run),
        "account": account_shares(diagnosis.account),
        "line_account": _line_account(diagnosis.line_account),
        "steps": {
            "count": steps.count,
            "steady": steps.steady,
            "median_ns": _nanoseconds(steps.median_ns),
            "p99_ns": _nanoseconds(steps.p99_ns),
            "samples_per_s": _rounded(steps.samples_per_s, 4),
            "anchor": steps.anchor,
            "trainer": steps.trainer,
            "stretches": {
                "steps": diagnosis.step_blocks.steps,
                "mean_ns": [round(mean) for mean in diagnosis.step_blocks.mean_ns],
            },
        },
        "ranks": [_rank(figures) for figures in diagnosis.all_ranks],
        "skew": _skew(diagnosis.skew),
        "processes": dict(diagnosis.processes),
        "warnings": list(diagnosis.warnings),
        "perfwrap_cost": _cost(diagnosis),
        "gpu": [_gpu(figures) for figures in diagnosis.gpu_activity],
        "gpu_idle": gpu_idle(diagnosis.phase_idle),
        "energy": energy(diagnosis),
        "gpu_memory": [_memory(memory) for memory in diagnosis.gpu_memory],
        "kernels": list(diagnosis.kernels),
        "run": _run(diagnosis.run),
        "conditions": dict(sorted(diagnosis.conditions.items())),
        "machine": machine(diagnosis),
    }


def text(diagnosis: Diagnosis) -> str:
    """Return the document as text; never NaN or Infinity, which are not JSON."""
    return dumped(document(diagnosis))


def dumped(value: object) -> str:
    """Return any document as text, a list of numbers on one line."""
    lines = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    # No text in it holds a line break, so this finds nothing but lists.
    return NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", lines)


def write(diagnosis: Diagnosis, path: Path) -> None:
    """Write the document in one step, so that a reader never sees an incomplete file."""
    # A lone surrogate (a file name that is no UTF-8) is no JSON text: a question mark stands for it.
    replace_text(path, text(diagnosis), errors="replace")


def account_shares(account: Mapping[str, int]) -> dict[str, float]:
    """Return each part's share of the training loop; the sum is exactly 1, or it is empty."""
    parts = units.apportion({part: float(value) for part, value in account.items()}, ACCOUNT_GRAIN)
    return {part: grains / ACCOUNT_GRAIN for part, grains in parts.items()} if sum(parts.values()) else {}


def _whole_run(run: WholeRun | None) -> dict[str, Any] | None:
    """Return the parts of the whole run in nanoseconds, and where its time outside the loop went."""
    if run is None:
        return None
    return {
        "total_ns": run.total_ns,
        "parts_ns": dict(run.parts),
        "imports_ns": dict(run.imports[:MAX_PACKAGES]),
        "places": [
            {
                "part": place.part,
                "package": place.package,
                **(_line(place.where.file, place.where.line) if place.where else NO_LINE),
                "ns": place.ns,
            }
            for place in run.places
        ],
    }


def _line_account(account: LineAccount | None) -> dict[str, Any] | None:
    """Return one step by lines of the program and by modules; None if no operations were recorded."""
    if account is None:
        return None
    return {
        "step_ns": round(account.step_ns),
        "bare_step_ns": round(account.bare_ns),
        "lines": [_line_cost(cost, account.step_ns) for cost in account.lines],
        "modules": [
            {
                "path": module.path,
                "class": module.kind,
                "model": module.model,
                "forward_ns": round(module.forward_ns),
                "backward_ns": round(module.backward_ns),
                "operations": module.operations,
            }
            for module in account.modules
        ],
    }


def _line_cost(cost: LineCost, step_ns: float) -> dict[str, Any]:
    """Return what a line costs, in all and by part; only the parts that it has."""
    parts = {part: ns for part, ns in cost.parts.items() if ns}
    return {
        **(_line(cost.line.file, cost.line.line) if cost.line.file else NO_LINE),
        "function": cost.line.function or None,
        "ns": round(cost.ns),
        "share": _rounded(cost.ns / step_ns, 6),
        "parts_ns": {part: round(ns) for part, ns in parts.items()},
        "parts": {part: _rounded(ns / step_ns, 6) for part, ns in parts.items()},
        "operations": cost.operations,
        "kinds": dict(cost.kinds),
        "shape": cost.shape or None,
        "module": cost.module or None,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """Return one finding; what was found is the first sentence of the evidence."""
    low, high = finding.saving
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "share": _share(finding.share),
        "saving": {"low": _ratio(low), "high": _ratio(high)},
        "location": _location(finding.location),
        "evidence": [finding.sentence, *finding.evidence],
        "advice": finding.advice,
        "experiment": finding.experiment,
        "options": [_option(option, finding.problem) for option in finding.options],
    }


def _option(option: Option, problem: Location | None) -> dict[str, Any]:
    """Return one way to fix a problem, with the line to change."""
    low, high = option.saving
    return {
        "edit": option.edit,
        "details": option.details or None,
        "saving": {"low": _ratio(low), "high": _ratio(high)},
        "basis": option.basis or None,
        "experiment": option.experiment,
        "location": _location(option.location or problem),
    }


def _location(found: Location | None) -> dict[str, Any] | None:
    """Return a line, with the last one of a range of lines."""
    if found is None:
        return None
    range_end = {} if found.until_line is None else {"until_line": found.until_line}
    return {**_line(found.file, found.line), **range_end}


def _line(file: str, line: int) -> dict[str, Any]:
    """Return a line of a file, or of a cell of a notebook with the cell's execution number."""
    number = cell_number(file)
    return {"file": without_cell(file), **({} if number is None else {"cell": number}), "line": line}


def _rank(figures: RankFigures) -> dict[str, Any]:
    """Return one trainer's figures."""
    skew = figures.skew
    return {
        "rank": figures.rank,
        "name": figures.name,
        "host": figures.host,
        "pid": figures.pid,
        "steps": figures.steps,
        "steady": figures.steady,
        "median_ns": _nanoseconds(figures.median_ns),
        "start": figures.start,
        "turn": figures.group,
        "account": account_shares(figures.account),
        "cores": figures.cores or None,
        "meetings": None
        if skew is None
        else {
            "count": skew.sync_points,
            "last": skew.last,
            "wait_ns": round(skew.wait_ns),
            "caused_ns": round(skew.caused_ns),
        },
    }


def _skew(skew: Skew | None) -> dict[str, Any] | None:
    """Return how far the ranks differ in time; None if that is not known."""
    if skew is None:
        return None
    return {
        "steps": skew.steps,
        "step_ns": round(skew.step_ns),
        "meetings": skew.sync_points,
        "measured": skew.measured,
        "waiting_share": _share(skew.waiting_share),
        "latest": skew.latest.trainer.rank,
        "latest_share": _share(skew.latest_share),
        "always_the_same": skew.always_the_same,
    }


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was run, when, for how long and how it ended; null if that is unknown."""
    start, end = run.get("start") or {}, run.get("end") or {}
    return {
        "name": run.get("name"),
        "tags": list(run.get("tags") or ()),
        "command": [str(word) for word in run.get("command") or ()],
        "perfwrap": (run.get("versions") or {}).get("perfwrap"),
        "start_wall_ns": start.get("wall_ns"),
        "duration_ns": end["monotonic_ns"] - start["monotonic_ns"] if start and end else None,
        "exit": run.get("exit"),
        "attached": "attached" in run,
        "imported": "imported" in run,
    }


def machine(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return how busy the trainer's machine was during the steady loop; None if not recorded."""
    processors = diagnosis.processors
    if processors is None or processors.busy is None or processors.tree_busy is None:
        return None
    return {
        "cores_online": processors.online,
        "cores_busy": _rounded(processors.busy, 3),
        "own_cores": _rounded(processors.tree_busy, 3),
        "stolen_cores": _rounded(processors.stolen, 3),
        "switches_per_s": _rounded(processors.involuntary_switches_per_s, 3),
        "other_programs": _other_programs(diagnosis.other_programs),
    }


def _other_programs(others: OtherPrograms | None) -> dict[str, Any] | None:
    """Return what other programs used of the training's cores; None if they took none away, or if unknown."""
    if others is None:
        return None
    return {
        "cores": _rounded(others.cores, 3),
        "of_cores": others.of_cores,
        "share": _share(others.share),
        "programs": [{"name": name, "share": _share(share)} for name, share in others.programs],
    }


def _cost(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the overhead of perfwrap."""
    cost = diagnosis.perfwrap_cost
    return {
        "share": _share(cost.share) if cost else None,
        "low": _share(cost.low) if cost else None,
        "high": _share(cost.high) if cost else None,
        "measured": cost.measured if cost else None,
        "monitor_cores": _rounded(cost.monitor_cores, 2) if cost else None,
        "journal_bytes": cost.journal_bytes if cost else None,
        "processor": None
        if cost is None or cost.processor is None
        else {
            "share": _rounded(cost.processor.share, 4),
            "command_s": _rounded(cost.processor.command, 3),
            "recorder_s": _rounded(cost.processor.recorder, 3),
            "monitors_s": _rounded(cost.processor.monitors, 3),
        },
    }


def _gpu(figures: GpuFigures) -> dict[str, Any]:
    """Return what one GPU did; times are exact, shares have six digits so that they still sum up."""
    launches = figures.launches
    return {
        "device": figures.device,
        "host": figures.host,
        "source": figures.source,
        "kernels": figures.kernels,
        "copies": figures.copies,
        "memsets": figures.memsets,
        "launches": launches.count,
        "window_ns": figures.window_ns,
        "busy_share": _rounded(figures.busy_share, 6),
        "loop_busy_share": _rounded(figures.loop_busy_share, 6),
        "profiler_added_ns": _nanoseconds(figures.profiler_added_ns),
        "kernels_busy_share": _rounded(figures.kernels_busy_share, 6),
        "collective_ns": figures.collective_ns,
        "collective_exposed_ns": figures.collective_exposed_ns,
        "h2d_exposed_ns": figures.h2d_exposed_ns,
        "copies_exposed_ns": figures.copies_exposed_ns,
        "overlap_ns": figures.overlap_ns,
        "idle": {blame: _rounded(share, 6) for blame, share in figures.idle.items()},
        "inferred_data_share": _rounded(figures.inferred_data_share, 6),
        "steps": {
            "count": figures.steps,
            "median_period_ns": _nanoseconds(figures.step_ns),
            "busy_share": _rounded(figures.steps_busy_share, 6),
        },
        "critical_path": _shares(figures.critical_path),
        "critical_path_host": _shares(figures.critical_path_host),
        "flops": _rounded(figures.flops, 6),
        "mfu": _share(figures.mfu),
        "launch": {
            "call_ns": _nanoseconds(launches.call_ns),
            "delay_ns": _nanoseconds(launches.delay_ns),
            "run_ahead_ns": _nanoseconds(launches.run_ahead_ns),
            "kernel_ns": _nanoseconds(launches.kernel_ns),
            "short_share": _share(launches.short_share),
        },
        "classes": {
            kind.name: {
                "count": kind.count,
                "duration_ns": kind.duration_ns,
                "tensor_ns": kind.tensor_ns,
                "plain_ns": kind.plain_ns,
            }
            for kind in figures.classes
        },
    }


def _memory(memory: GpuMemory) -> dict[str, Any]:
    """Return what used the memory of one GPU."""
    return {
        "device": memory.device,
        "host": memory.host,
        "allocated_bytes": memory.allocated,
        "reserved_bytes": memory.reserved,
        "free_bytes": memory.free,
        "largest_free_bytes": memory.largest_free,
        "stuck_bytes": memory.stuck,
        "peak_allocated_bytes": memory.peak,
        "lines": [
            {
                **(_line(held.where.file, held.where.line) if held.where else NO_LINE),
                "function": held.where.function if held.where else held.what or None,
                "bytes": held.bytes,
                "blocks": held.blocks,
            }
            for held in memory.lines
        ],
    }


def _shares(parts: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """Return shares with six digits, so that they still sum up; None if they are not known."""
    return None if parts is None else {part: _rounded(share, 6) for part, share in parts.items()}


def _rounded(value: float | None, digits: int) -> float | None:
    """Return the value with so many significant digits; None for NaN and infinity."""
    return None if value is None or not math.isfinite(value) else units.significant(float(value), digits)


def _ratio(value: float) -> float:
    """Return a step-time ratio between 0 and 1 with two significant digits."""
    return _rounded(min(1.0, max(0.0, value)), 2) or 0.0


def _share(value: float | None) -> float | None:
    """Return a share between 0 and 1 with three significant digits."""
    return None if value is None else _rounded(min(1.0, max(0.0, value)), 3)


def _nanoseconds(value: float | None) -> int | None:
    """Return whole nanoseconds; None for NaN and infinity."""
    return None if value is None or not math.isfinite(value) else round(value)
