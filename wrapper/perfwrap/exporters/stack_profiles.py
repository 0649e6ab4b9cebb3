"""The stacks of a run for viewers: sampled ones of each thread, and those of one inspected step."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from perfwrap.diagnosis.model import Diagnosis, LineAccount
from perfwrap.exporters.export_model import NANOSECONDS, SAMPLES, Stack, StackFrame, StackProfile
from perfwrap.exporters.naming import clean
from perfwrap.timeline.model import Timeline

STEP = "one step"
FRAME = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<line>\d{1,9})\)$", re.DOTALL)
"""A frame of a sampled stack; one without a file is a name alone."""
STEP_FRAME = re.compile(r"^(?P<file>.*):(?P<line>\d{1,9}) (?P<function>.*)$", re.DOTALL)
"""A frame of an inspected step."""
PREFERRED = "py-spy"
"""The source that sees whole stacks at any moment; where it sampled, the recorder's samples are left out."""
MAX_STACKS = 200_000
"""Consecutive equal stacks count once; beyond it, equal ones of a thread are joined, and their order is lost."""


def find_profiles(diagnosis: Diagnosis, timeline: Timeline) -> tuple[StackProfile, ...]:
    """Return the step that was inspected, if any, and then each thread that was sampled, the most often seen first."""
    found = sorted(_sampled(timeline), key=lambda profile: -profile.total)
    step = (_step(diagnosis.line_account),) if diagnosis.line_account is not None else ()
    return (*step, *found)


def _step(account: LineAccount) -> StackProfile:
    """Return the stacks of a step: frames, and the part of the step as the innermost one."""
    stacks = []
    for (*frames, part), ns in account.stacks.items():
        known = tuple(_parsed(STEP_FRAME, frame) for frame in frames)
        stacks.append(((*known, StackFrame(part)), round(ns)))
    return StackProfile(STEP, NANOSECONDS, tuple(stack for stack in stacks if stack[1] > 0))


def _sampled(timeline: Timeline) -> Iterator[StackProfile]:
    """Yield the samples of each thread."""
    stacks = timeline.stacks
    if PREFERRED in stacks["source"]:
        stacks = stacks.filter(pl.col("source") == PREFERRED)
    names = {row["id"]: row for row in timeline.tracks.iter_rows(named=True)}
    for (track,), rows in stacks.sort("time").group_by("track", maintain_order=True):
        thread = names.get(track) or {}
        process = names.get(thread.get("parent")) or {}
        words = [str(one.get("name") or "") for one in (process, thread)]
        name = clean(" ".join(word for word in words if word) or f"thread {track}")
        yield StackProfile(name, SAMPLES, tuple(_merged(rows)))


def _merged(rows: pl.DataFrame) -> Iterator[Stack]:
    """Yield the stacks of a thread; equal ones that follow each other are one."""
    texts = rows.select(pl.col("stack").fill_null(""), "weight")
    runs = texts.group_by(pl.col("stack").rle_id().alias("run"), "stack", maintain_order=True)
    merged = runs.agg(pl.col("weight").sum())
    if merged.height > MAX_STACKS:
        merged = texts.group_by("stack", maintain_order=True).agg(pl.col("weight").sum())
    frames: dict[str, StackFrame] = {}
    for text, weight in merged.select("stack", "weight").iter_rows():
        words = [word for word in text.split(";") if word]
        if words and weight > 0:
            yield tuple(frames.setdefault(word, _parsed(FRAME, word)) for word in words), int(weight)


def _parsed(pattern: re.Pattern[str], text: str) -> StackFrame:
    """Return a frame from its text."""
    found = pattern.match(text)
    if found is None:
        return StackFrame(clean(text))
    return StackFrame(clean(found["function"]), clean(found["file"]), int(found["line"]))
