"""What the rules about wasted work inside a step share; their evidence are the dataflow windows of perfwrap inspect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from pathlib import PurePath

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import WastedWork, find_wasted_work
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, locate, place
from perfwrap.timeline.operation_window import BACKWARD

MIN_WASTE_SHARE = 0.03
"""Share of the training loop below which wasted work is not reported: smaller shares are not certain enough."""

PHASES = ("data", "forward", "backward", "optimizer")

EXPLAINED_PART = 0.5
"""Part of a section of the program's own code from which the waste in it explains the section."""

MOST = 0.75
"""Minimum share that disappears of wasted work."""

FREED = 0.7
"""Maximum additional gain, as a share of the waste, in a step with hardly anything else: the caches then serve only the
rest. The fixes of seventeen scripts gained 1.24 times the waste (median), between 0.7 and 1.7 times
(docs/accuracy.md)."""

MAX_FINDINGS = 3
"""Findings of one rule, the largest first."""

MAX_NAMED = 4


class Words(Struct, frozen=True):
    """The sentences of one finding."""

    title: str
    evidence: tuple[str, ...]
    advice: str


def found(
    evidence: Evidence,
    trainer: Trainer,
    kind: str,
    min_share: float,
    describe: Callable[[Waste], Words],
    nothing: str,
) -> Answer:
    """Return the wastes of a kind as findings; ``nothing`` is the sentence if there are none of that share."""
    work = evidence.get(find_wasted_work, trainer)
    if work is None:
        return NotChecked("This training thread has no recorded operations.")
    if kind in work.unknown:
        return NotChecked(work.unknown[kind])
    on_gpu = trains_on_gpu(evidence, trainer)
    findings = []
    for waste in work.wastes[kind][:MAX_FINDINGS]:
        share = waste.share * work.loop_share
        if share < min_share:
            continue
        words = describe(waste)
        location = next((line for line in (*waste.lines, *waste.callers) if line.file), None)
        findings.append(
            Finding(
                title=words.title,
                share=share,
                evidence=(*words.evidence, *_called_from(waste)),
                options=(Option(words.advice, _saving(share, waste, on_gpu)),),
                verdict="compute-bound",
                location=locate(location),
                confidence="inferred" if on_gpu else "measured",
                claims=_claims(evidence, trainer, work, waste),
            )
        )
    return findings or Clear(nothing)


def _claims(evidence: Evidence, trainer: Trainer, work: WastedWork, waste: Waste) -> pl.Expr | None:
    """Select the program's own code between the phases if most of it is this waste; None if there is no such code."""
    flow, claimed = work.flow, []
    outside = _outside_phases(evidence, trainer, flow, waste)
    for gap in evidence.get(find_python_gaps, trainer):
        inside = [number for number in outside if _is_in(gap, flow, number)]
        if inside and flow.share(inside) * work.loop_share >= EXPLAINED_PART * gap.share:
            claimed.append(gap.segments)
    return reduce(or_, claimed) if claimed else None


def _outside_phases(evidence: Evidence, trainer: Trainer, flow: Dataflow, waste: Waste) -> list[int]:
    """Return the wasted operations that ran between the recorded phases of the step: not in forward, for example."""
    ends = flow.window.ends
    begin, end = flow.window.opened + ends[0], flow.window.opened + ends[1]
    spans = evidence.timeline.spans.filter(
        pl.col("track") == trainer.thread,
        pl.col("operation").is_in(PHASES),
        pl.col("start") < end,
        pl.col("start") + pl.col("duration") > begin,
    )
    phases = list(zip(spans["start"], spans["start"] + spans["duration"], strict=True))
    found = []
    for number in waste.operations:
        moment = flow.window.opened + flow.operations[number].start
        if not flow.has(number, BACKWARD) and not any(since <= moment < until for since, until in phases):
            found.append(number)
    return found


def _is_in(gap: PythonGap, flow: Dataflow, number: int) -> bool:
    """Return whether an operation was called by code of a section, which may go on in the next turn of the loop."""
    after, until = gap.after, gap.until_line
    if after is None or until is None:
        return False
    if after.line <= until:
        return any(
            frame.file == after.file and after.line <= frame.line <= until for frame in flow.stack(number)
        )
    return any(
        (frame.file, frame.function) == (after.file, after.function) and not until < frame.line < after.line
        for frame in flow.stack(number)
    )


def explains(evidence: Evidence, trainer: Trainer, kinds: Sequence[str], line: Line | None = None) -> bool:
    """Return whether wasted work of these kinds was found, in the function of a line if it is given."""
    work = evidence.get(find_wasted_work, trainer)
    wastes = [waste for kind in kinds for waste in work.wastes[kind]] if work is not None else []
    return any(
        waste.share * (work.loop_share if work else 1.0) >= MIN_WASTE_SHARE
        and (
            line is None
            or any((each.file, each.function) == (line.file, line.function) for each in waste.lines)
        )
        for waste in wastes
    )


def _saving(share: float, waste: Waste, on_gpu: bool) -> tuple[float, float]:
    """Return the step time after the fix over that now, best and worst; on a GPU the host may be the limit."""
    certain = 1.0
    if waste.certain_share is not None and waste.share:
        certain = min(1.0, waste.certain_share / waste.share)
    best = max(0.0, 1.0 - share * (1.0 + FREED * (1.0 - share)))
    return best, 1.0 if on_gpu else 1.0 - MOST * certain * share


def _called_from(waste: Waste) -> tuple[str, ...]:
    """Return the lines that call the wasted work, as a sentence."""
    shown = {(line.file, line.line) for line in waste.lines}
    callers = [line for line in waste.callers if line.file and (line.file, line.line) not in shown]
    return (f"Called from {lines(callers)}.",) if callers else ()


def lines(known: Sequence[Line]) -> str:
    """Return e.g. ``net.py:9, 10 and 11, train.py:30``."""
    by_file: dict[str, list[int]] = {}
    for line in known[:MAX_NAMED]:
        if line.file and line.line not in by_file.setdefault(line.file, []):
            by_file[line.file].append(line.line)
    return ", ".join(
        f"{PurePath(file).name}:{_joined([str(number) for number in sorted(numbers)])}"
        for file, numbers in by_file.items()
    )


def at(waste: Waste) -> str:
    """Return the first known line of a waste."""
    return place(next((line for line in waste.lines if line.file), None), "an unknown line")


def many(waste: Waste) -> str:
    """Return e.g. ``27 operations``."""
    return units.counted(len(waste.operations), "operation")


def functions(waste: Waste) -> str:
    """Return e.g. ``384 select, 256 add and 128 clamp``."""
    return _joined([f"{count} {name}" for name, count in waste.names])


def _joined(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))
