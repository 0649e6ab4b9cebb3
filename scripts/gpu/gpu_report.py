"""The result of scripts/gpu_check.py as Markdown: its figures, and the lines for docs/checks.md."""

from __future__ import annotations

from typing import Any

import gpu_parts
import load_units
import overhead

CHECKS = {
    "compared": "time between events is that of torch.profiler, and no wait for the GPU is added",
    "idle": "planted idle time is blamed on its cause",
    "windows": "steps after a window take as long as without one",
    "inspect": "`--inspect` changes no loss",
    "behaviours": "programs behave the same",
    "units": "monitors distinguish known loads and count their energy",
    "ncu": "`--ncu` leaves a table",
    "loops": "cost per step",
}
"""What each part proves, as a row of docs/checks.md."""


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [f"{result['device']}, PyTorch {result['torch']}.", ""]
    lines += _loops(result.get("loops") or {})
    lines += _compared(result["compared"]) if "compared" in result else []
    lines += _idle(result.get("idle") or {})
    lines += _windows(result.get("windows") or {})
    lines += _behaviours(result.get("behaviours") or {})
    if result.get("units"):
        lines += ["", load_units.markdown(result["units"])]
        if not load_units.has_gpm(result["units"]):
            lines += ["", "This GPU has no GPM: only utilisation, link and power were checked."]
    lines += ["", *_checks(result)]
    lines += [f"Skipped: {part}: {why}." for part, why in result.get("skipped", {}).items()]
    if "unread" in result:
        lines.append(f"Not read yet: {result['unread']}.")
    return "\n".join([*lines, *result["problems"]])


def _checks(result: dict[str, Any]) -> list[str]:
    """Return the rows for docs/checks.md: what was checked on this GPU, and how it ended."""
    rows = [f"| on {result['device']} | ended |", "|---|---|"]
    for part, words in CHECKS.items():
        if part in result:
            problems = len(gpu_parts.judge({part: result[part]}))
            rows.append(f"| {words} | {'as it must' if not problems else f'{problems} problems'} |")
    return [*rows, ""] if len(rows) > 2 else []


def _loops(loops: dict[str, Any]) -> list[str]:
    if not loops:
        return []
    names = list(next(iter(loops.values()))["ratios"])
    lines = ["| step | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for loop in loops.values():
        ratios = [loop["ratios"][name] for name in names]
        # Those of an earlier run come from its JSON.
        cells = [str(overhead.Ratio(**ratio) if isinstance(ratio, dict) else ratio) for ratio in ratios]
        lines.append(f"| {loop['step_ns'] / 1e6:.2f} ms | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _compared(compared: dict[str, Any]) -> list[str]:
    lines = ["| phase | torch.profiler | perfwrap's events | difference |", "|---|---|---|---|"]
    for phase, times in compared["phases"].items():
        each = [
            f"{times[clock] / gpu_parts.PROGRAM_STEPS / 1e3:.3f} ms" for clock in ("profiler_us", "events_us")
        ]
        lines.append(f"| {phase} | {each[0]} | {each[1]} | {gpu_parts.difference(times):+.1%} |")
    syncs = compared["syncs"]
    return [*lines, "", f"Waits for the GPU: {syncs['bare']} bare, {syncs['recorded']} recorded."]


def _idle(idle: dict[str, Any]) -> list[str]:
    if not idle:
        return []
    lines = [
        "",
        "| planted idle time | planted | blamed by events | blamed by kernels |",
        "|---|---|---|---|",
    ]
    for cause, found in idle.items():
        read = found.get("read", {})
        cells = [f"{read[way].get(cause, 0.0):.0%}" if way in read else "-" for way in ("events", "kernels")]
        lines.append(f"| {cause} | {gpu_parts.planted_share(found):.0%} | " + " | ".join(cells) + " |")
    return lines


def _windows(windows: dict[str, Any]) -> list[str]:
    if not windows:
        return []
    lines = [
        "",
        "| window | step, first quarter | step, last quarter | recorder's note |",
        "|---|---|---|---|",
    ]
    for name, found in windows.items():
        first, last = (f"{found['quarters_ns'][place] / 1e6:.3f} ms" for place in (0, -1))
        lines.append(f"| {name} | {first} | {last} | {'; '.join(found['windows']) or '-'} |")
    return lines


def _behaviours(behaviours: dict[str, Any]) -> list[str]:
    if not behaviours:
        return []
    compared = [part for part, found in behaviours.items() if found["repeatable"]]
    same = sum(not behaviours[part]["different"] for part in compared)
    skipped = ", ".join(sorted(behaviours.keys() - set(compared))) or "none"
    return ["", f"Behaviours that are the same: {same} of {len(compared)}; not repeatable bare: {skipped}."]
