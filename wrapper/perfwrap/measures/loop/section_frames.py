"""Whether the call stack of a sample passes through a section of the program's own code."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import FRAME, is_program
from perfwrap.measures.loop.python_gaps import PythonGap, pieces_of
from perfwrap.measures.loop.source_calls import begin_of_statement
from perfwrap.measures.trainers import Trainer


class Calls(Struct, frozen=True):
    """Two lines of one function that call, in other functions, the event before a section and the event after it."""

    file: str
    function: str
    after: int
    until: int


class Bounds(Struct, frozen=True):
    """Lines of recorded events around a section."""

    begin: int = 0
    """The first line of the statement in which it begins: calls of that statement are at this line."""
    next_event: int | None = None
    """In the function of the event before the section, the first line of another event after it."""
    until: Line | None = None
    """The event after the section, if it is in another file than the one before it."""
    last_event: int | None = None
    """In the function of ``until``, the last line of another event before it."""
    calls: Calls | None = None
    """Where both events are called, if their functions are different."""


def find_bounds(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> Bounds:
    """Return the lines of the events around a section."""
    if gap.after is None:
        return Bounds()
    begin = begin_of_statement(evidence.timeline.run, gap.after.file, gap.after.line)
    if gap.until_line is not None:
        return Bounds(begin)
    known = evidence.get(_event_lines, trainer)
    later = [line for line in known.get(_function(gap.after), ()) if line > gap.after.line]
    until = _event_after(evidence, trainer, gap)
    earlier = [line for line in known.get(_function(until), ()) if line < until.line] if until else []
    calls = _find_calls(evidence, trainer, gap.after, until) if until else None
    return Bounds(begin, min(later, default=None), until, max(earlier, default=None), calls)


def is_in(stack: str, gap: PythonGap, bounds: Bounds, alone: bool) -> bool:
    """Return whether a stack is in a section: whether it passes through the section's lines.

    A stack with only its innermost frame, in another function than the section, counts if the section is ``alone``.
    Between events in different files, a line belongs to the section whose event in the same function is nearest.
    """
    if gap.after is None:
        return alone
    frames = [(found["function"], found["file"], int(found["line"])) for found in FRAME.finditer(stack)]
    until = bounds.until
    if until is not None and any(
        file == until.file
        and is_same_function(name, until.function)
        and _is_before(line, until.line, bounds.last_event)
        for name, file, line in frames
    ):
        return True
    calls = bounds.calls
    if calls is not None and any(
        file == calls.file
        and is_same_function(name, calls.function)
        and line not in (calls.after, calls.until)
        and _between(line, calls.after, calls.until, None)
        for name, file, line in frames
    ):
        return True
    here = [(name, line) for name, file, line in frames if file == gap.after.file]
    own = [line for name, line in here if is_same_function(name, gap.after.function)]
    if not own and len(frames) == 1:
        return alone
    # The event before the section may be in a function that has returned: then the lines of its callers decide.
    lines = own or [line for _, line in here]
    return any(
        bounds.begin <= line <= gap.after.line
        or _between(line, gap.after.line, gap.until_line, bounds.next_event if own else None)
        for line in lines
    )


def _find_calls(evidence: Evidence, trainer: Trainer, after: Line, until: Line) -> Calls | None:
    """Return the lines of the innermost function that calls both events, in the order in which the calls follow."""
    chains = evidence.get(_call_lines, trainer, after), evidence.get(_call_lines, trainer, until)
    for place, lines in chains[0].items():
        others = chains[1].get(place, frozenset())
        if not others or place in (_function(after), _function(until)) and len(lines | others) < 2:
            continue
        pairs = [(there - line, line, there) for line in lines for there in others if there > line]
        if pairs:
            return Calls(*place, *min(pairs)[1:])
        if max(lines) != min(others):
            return Calls(*place, max(lines), min(others))
    return None


def _call_lines(evidence: Evidence, trainer: Trainer, event: Line) -> dict[tuple[str, str], frozenset[int]]:
    """Return the functions on the way to an event, innermost first, with the lines that they call it from."""
    found: dict[tuple[str, str], set[int]] = {_function(event): {event.line}}
    depths: dict[tuple[str, str], int] = {_function(event): 0}
    for frames in evidence.get(_stacks, trainer):
        at = next(
            (
                number
                for number in range(len(frames) - 1, -1, -1)
                if frames[number][1] == event.file and is_same_function(frames[number][0], event.function)
            ),
            0,
        )
        for depth, (name, file, line) in enumerate(reversed(frames[:at]), start=1):
            found.setdefault((file, name), set()).add(line)
            depths[file, name] = max(depths.get((file, name), 0), depth)
    return {place: frozenset(found[place]) for place in sorted(found, key=lambda place: depths[place])}


def _stacks(evidence: Evidence, trainer: Trainer) -> list[list[tuple[str, str, int]]]:
    """Return the program's own frames of the thread's distinct stacks in the steady loop, outermost first."""
    account, stacks = evidence.get(find_account, trainer), evidence.timeline.stacks
    rows = stacks.filter(
        pl.col("track") == trainer.thread, pl.col("time").is_between(account.start, account.end)
    )
    parsed = (
        [(found["function"], found["file"], int(found["line"])) for found in FRAME.finditer(stack)]
        for stack in rows["stack"].unique().sort().to_list()
    )
    return [[frame for frame in frames if is_program(frame[1])] for frames in parsed]


def _event_lines(evidence: Evidence, trainer: Trainer) -> dict[tuple[str, str], list[int]]:
    """Return the lines of recorded events in each function of the program."""
    segments = evidence.get(find_account, trainer).segments
    events = segments.filter(pl.col("operation").is_not_null(), pl.col("file").is_not_null())
    rows = events.select("file", pl.col("function").fill_null(""), "line").unique().sort("line").iter_rows()
    found: dict[tuple[str, str], list[int]] = {}
    for file, function, line in rows:
        found.setdefault((file, function), []).append(line)
    return found


def _event_after(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> Line | None:
    """Return the place of the event that most often follows a section."""
    account = evidence.get(find_account, trainer)
    events = account.segments.filter(pl.col("operation") == gap.before_operation, ~pl.col("estimated"))
    ends = pieces_of(account, gap).select(pl.col("end").alias("start"))
    rows = ends.join(events, on="start").group_by("file", "line", "function").len().drop_nulls("file")
    if rows.is_empty():
        return None
    row = rows.sort("len", "file", "line", descending=[True, False, False]).row(0, named=True)
    return line_of(row["file"], row["line"], row["function"])


def _function(line: Line) -> tuple[str, str]:
    return line.file, line.function


def _is_before(line: int, until: int, last_event: int | None) -> bool:
    """Return whether a line is before that of an event, and nearer to it than to the event before."""
    return line <= until and (last_event is None or until - line < line - last_event)


def _between(line: int, after: int, until: int | None, next_event: int | None) -> bool:
    """Return whether a line is in a section, which may wrap around a loop."""
    if until is None:
        return line >= after and (next_event is None or line - after <= next_event - line)
    return after <= line <= until if after <= until else line >= after or line <= until


def is_same_function(name: str, other: str) -> bool:
    """Return whether two names may be of one function: some Python versions include the class, others do not."""
    return name.rpartition(".")[2] == other.rpartition(".")[2]
