"""Describe a stall: who waits, in which call, who is missing; for the run folder, the mark and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from perfwrap.journal_format import FIELD_SEPARATOR, SPANS
from perfwrap.journal_words import read_words
from perfwrap.monitors.progress.followed_journals import Followed
from perfwrap.monitors.progress.live_journal import Place, parse_label
from perfwrap.monitors.stalls.stall_stacks import Frame, Stacks

NAMES = {number: name.lower() for name, number in SPANS.items()}
COLLECTIVE, DATA = "collective", "data"
IN_COLLECTIVE = ("/torch/distributed/",)
"""Parts of the file names in the stack of a process that waits for others; DDP does so in a backward pass."""
BACKWARD = "/torch/autograd/"
NAMED = 4
"""The maximum number of ranks that a sentence names."""


@dataclass(frozen=True)
class Standing:
    """The state of one trainer during a stall."""

    pid: int
    rank: int | None
    steps: int
    rests: bool
    """Whether its number of steps is written late."""
    is_through: bool
    """Whether it has ended, or has left its loop."""
    alive: bool
    inside: str = ""
    """The kind of the call that it is inside, "data" or "collective"; empty if not recorded."""
    call: Place = Place("")
    """That call and its line."""
    last: str = ""
    """The kind of the last record."""
    last_place: Place = Place("")
    frame: Frame | None = None
    """The user's innermost frame of its main thread."""
    wchan: str = ""
    meets: bool = False
    """Whether it waits for other ranks, according to its records or its stack."""

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        return "the training process" if self.rank is None else f"rank {self.rank}"

    @property
    def words(self) -> str:
        """Its state, as the continuation of its name."""
        if not self.alive:
            return "has ended"
        if self.inside == COLLECTIVE:
            return f"waits in {self.call.name}{_at(self.call)}"
        if self.inside == DATA:
            return f"waits for a batch{_at(self.call, ' of the DataLoader made')}"
        if self.frame is not None:
            return f"is at {PurePath(self.frame.file).name}:{self.frame.line} ({self.frame.function})"
        if self.is_through:
            return "has reached the end of its loop"
        asleep = f", asleep in the kernel's {self.wchan}" if self.wchan else ""
        return f"did nothing after its {self.last or 'step'}{_at(self.last_place)}{asleep}"

    @property
    def where(self) -> Place:
        """The line where it is, as far as known."""
        if self.inside != DATA and self.call.line:
            return self.call
        if self.frame is not None:
            return Place(self.frame.function, self.frame.file, self.frame.line, self.frame.function)
        return self.call if self.call.line else self.last_place


def find_standing(followed: Followed, stacks: Stacks | None) -> Standing:
    """Return the state of a trainer, from its journal and its stacks, if available."""
    progress = followed.progress
    calls = progress.open_calls() if followed.alive else []
    last = progress.last_record()
    wanted = [call.name for call in calls] + ([last[1]] if last else [])
    words = read_words(progress.path)
    labels = {number: parse_label(words.text(number)) for number in wanted}
    call = max(calls, key=lambda call: call.start_ns, default=None)
    inside = NAMES.get(call.kind, "") if call else ""
    place = labels[call.name] if call else Place("")
    if inside == DATA:
        place = _made(place.name, words.facts)
    main = stacks.main if stacks else None
    meets = inside == COLLECTIVE or (main is not None and _meets(main.frames))
    return Standing(
        pid=followed.pid,
        rank=followed.rank,
        steps=progress.ends.count,
        rests=progress.rests,
        is_through=followed.is_through,
        alive=followed.alive,
        inside=inside,
        call=place,
        last=NAMES.get(last[0], "") if last else "",
        last_place=labels[last[1]] if last else Place(""),
        frame=main.users_frame if main else None,
        wchan=main.wchan if main else "",
        meets=meets,
    )


def find_missing(standings: Sequence[Standing]) -> list[Standing]:
    """Return the trainers that others wait for: those outside the collective, or else those with fewer steps."""
    if len(standings) < 2:
        return []
    meeting = [one for one in standings if one.meets and one.alive]
    away = [one for one in standings if one not in meeting]
    if meeting and away:
        return away
    if any(one.rests for one in standings):
        return []
    most = max(one.steps for one in standings)
    # Ranks may differ by one step, because some have already recorded part of the step that hangs.
    return [one for one in standings if one.steps < most]


def sentence(silent_s: float, standings: Sequence[Standing], slow: Sequence[str]) -> str:
    """Return the message for the terminal; ``slow`` names workers in which a batch hangs."""
    text = f"no step has ended for {silent_s:.0f} s"
    missing = find_missing(standings)
    waiting = [one for one in standings if one not in missing and one.alive]
    if missing:
        text += f": {_each(missing, ' is missing, it ')}"
        text += f"; {_each(waiting[:1])}" if waiting else ""
    elif waiting:
        text += f": {_each(waiting)}"
    return text + (f"; {'; '.join(slow[:NAMED])}" if slow else "")


def process_record(
    stacks: Stacks, followed: Followed | None, standing: Standing | None, start_ticks: int
) -> dict[str, Any]:
    """Return the entry of one process in the stall file."""
    found: dict[str, Any] = {
        "pid": stacks.pid,
        "start_ticks": start_ticks,
        "command": stacks.command,
        "role": followed.role if followed else None,
        "rank": followed.rank if followed else None,
        "stacks": "py-spy" if any(thread.frames for thread in stacks.threads) else "/proc",
        "stacks_missing": stacks.why or None,
        "threads": [asdict(thread) for thread in stacks.threads],
    }
    if standing is not None:
        found |= {
            "steps": standing.steps,
            "inside": place_record(standing.call, standing.inside) if standing.inside else None,
            "last": place_record(standing.last_place, standing.last) if standing.last else None,
            "stands": standing.words,
        }
    return found


def place_record(place: Place, what: str) -> dict[str, Any]:
    """Return a call and its line as in the stall file."""
    return {"what": what, **place._asdict()}


def _each(standings: Sequence[Standing], between: str = " ") -> str:
    """Return the states of some trainers, the first few by name."""
    named = [f"{one.name}{between}{one.words}" for one in standings[:NAMED]]
    more = len(standings) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _at(place: Place, before: str = "") -> str:
    """Return e.g. `` at train.py:31``, or nothing if the line is unknown."""
    return f"{before} at {PurePath(place.file).name}:{place.line}" if place.line else ""


def _made(loader: str, facts: Mapping[str, str]) -> Place:
    """Return where a DataLoader was created."""
    return parse_label(loader + FIELD_SEPARATOR + facts.get(f"{loader}/created", ""))


def _meets(frames: Sequence[Frame]) -> bool:
    """Return whether a stack may wait for other ranks: in torch.distributed, or in a backward pass."""
    own = [frame.file for frame in frames]
    return any(part in file for file in own for part in (*IN_COLLECTIVE, BACKWARD))
