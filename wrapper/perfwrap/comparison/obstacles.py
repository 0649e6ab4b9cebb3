"""Reasons why runs cannot be compared, and cautions for runs that can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeAlias

from perfwrap import units
from perfwrap.errors import PerfwrapError

MIN_STEADY_STEPS = 20
"""As many as a verdict needs; see measures.steps."""

CROWDED_SHARE = 0.10
"""Share of a machine's cores that other programs may use while none is free. Beyond it they determine the step time."""

FULL_SHARE = 0.90
"""From this utilization on, a machine has no free core."""

MIN_SWITCHES_PER_S = 20.0
"""Involuntary context switches per second of a run that shares its cores: 3 were measured on a quiet machine, 115 to
150 beside three other programs on two cores. A run with its own cores on a busy machine stays below."""

ALLOWABLE = {
    "host": "another type of machine",
    "gpu": "another GPU",
    "torch": "another version of PyTorch",
    "command": "another program",
    "world": "another number of training processes",
    "batch": "another batch size",
    "anchor": "another end of a step",
    "load": "a machine that other programs used",
}
"""Differences that can be allowed, because they are to be measured, in words."""


def allowances(words: Iterable[str]) -> frozenset[str]:
    """Return the intended differences; PerfwrapError for a word that is not in ALLOWABLE."""
    found = frozenset(words)
    for word in sorted(found - set(ALLOWABLE)):
        raise PerfwrapError(
            f"There is no difference {word!r} to allow.", f"Use one or more of: {', '.join(ALLOWABLE)}."
        )
    return found


Run: TypeAlias = tuple[str, Mapping[str, Any]]
"""A run's name and its diagnosis.json."""

Side: TypeAlias = Sequence[Run]
"""One run, or repeated runs."""


@dataclass(frozen=True)
class Obstacle:
    """One reason why runs cannot be compared; ``kind`` is of ALLOWABLE, or ``steps``, which cannot be allowed."""

    kind: str
    sentence: str


def demand_different(runs: Side, named: str) -> None:
    """Raise PerfwrapError if a run is named twice: the noise would look smaller than it is."""
    times = [document["steps"] for _, document in runs]
    if any(times.count(one) > 1 for one in times if one["steady"]):
        raise PerfwrapError(f"{named!r} names the same run twice.", "Name each run once.")


def find_obstacles(before: Side, after: Side) -> tuple[Obstacle, ...]:
    """Return all reasons why two sides cannot be compared; all runs are compared with the first."""
    runs = _called(before, after)
    _, reference = runs[0]
    found = [*_short(runs)]
    for _, other in runs[1:]:
        found += _differences(reference, other)
    return tuple(dict.fromkeys([*found, *_loaded(runs)]))


def find_cautions(before: Side, after: Side) -> tuple[str, ...]:
    """Return cautions that do not prevent a comparison, as sentences."""
    return tuple(dict.fromkeys([*_cautions(_called(before, after)), *_order(before, after)]))


def _called(before: Side, after: Side) -> list[Run]:
    """Return all runs with their names for sentences."""
    if len(before) == len(after) == 1:
        return [("the first run", before[0][1]), ("the second run", after[0][1])]
    return [(f"run {name}", document) for name, document in (*before, *after)]


def _short(runs: Sequence[Run]) -> Iterator[Obstacle]:
    """Check the number of steps."""
    for which, document in runs:
        steady = document["steps"]["steady"]
        if steady < MIN_STEADY_STEPS:
            few = f"{_capital(which)} has {units.counted(steady, 'steady step')}"
            yield Obstacle("steps", f"{few}; a comparison needs {MIN_STEADY_STEPS} or more.")


def _loaded(runs: Sequence[Run]) -> Iterator[Obstacle]:
    """Check whether other programs used the machine."""
    for which, document in runs:
        crowd = crowding(document.get("machine") or {})
        if crowd:
            yield Obstacle("load", f"During {which}, {crowd}, so its step times are not reliable.")


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Obstacle]:
    """Check all conditions; what is unknown for both runs is no obstacle."""
    old, new = before["conditions"], after["conditions"]
    for key, what in (("host/cpu_model", "processor"), ("host/cores_usable", "number of usable cores")):
        yield from _different("host", f"The {what} differs", old.get(key), new.get(key))
    yield from _different("gpu", "The GPU differs", old.get("gpu"), new.get("gpu"))
    for key in ("torch", "torch_cuda"):
        what = "PyTorch" if key == "torch" else "PyTorch's CUDA"
        yield from _different("torch", f"The version of {what} differs", old.get(key), new.get(key))
    yield from _different("command", "The program differs", program(before), program(after))
    for key in ("trainers", "world_size"):
        words = "The number of training processes differs"
        yield from _different("world", words, old.get(key), new.get(key), both=key == "world_size")
    key = "samples_per_step"
    yield from _different(
        "batch", "The number of samples per step differs", old.get(key), new.get(key), both=True
    )
    yield from _different("anchor", "The end of a step differs", _anchor(before), _anchor(after), both=True)


def _different(
    kind: str, words: str, before: str | None, after: str | None, both: bool = False
) -> Iterator[Obstacle]:
    """Yield an obstacle if two values differ; with ``both``, only if both are known."""
    if before != after and not (both and not (before and after)):
        yield Obstacle(kind, f"{words}: {before or 'unknown'} and {after or 'unknown'}.")


def _cautions(runs: Sequence[Run]) -> Iterator[str]:
    """Check what makes a comparison weaker, or is useful to know."""
    documents = [document for _, document in runs]
    hosts = list(dict.fromkeys(one["conditions"].get("host/name", "unknown") for one in documents))
    if len(hosts) > 1:
        names = f"{', '.join(hosts[:-1])} and {hosts[-1]}"
        count = "two machines" if len(hosts) == 2 else "several machines"
        yield f"The runs are from {count} of the same type ({names}); the difference between these is unknown."
    for which, document in runs:
        exit_ = document.get("run", {}).get("exit")
        if isinstance(exit_, dict) and exit_.get("code") != 0:
            how = f"signal {exit_['signal']}" if "signal" in exit_ else f"exit code {exit_.get('code')}"
            yield f"{_capital(which)} ended with {how}."
        if not document.get("machine") and document["steps"]["steady"]:
            yield f"For {which}, the CPU use of other programs was not recorded."
    versions = [document.get("run", {}).get("perfwrap") for document in documents]
    if any(version != versions[0] for version in versions):
        yield "The runs were recorded by different versions of perfwrap."


def _order(before: Side, after: Side) -> Iterator[str]:
    """Return a caution if the runs of the two sides were not alternated."""
    times = [
        [document.get("run", {}).get("start_wall_ns") for _, document in side] for side in (before, after)
    ]
    known = [[time for time in side if isinstance(time, int)] for side in times]
    if min(map(len, times)) < 2 or known != times:
        return
    if max(known[0]) < min(known[1]) or max(known[1]) < min(known[0]):
        yield (
            "All runs of one side were made before those of the other, so a change of the machine in between would "
            "look like a difference. Alternate the runs."
        )


def _capital(words: str) -> str:
    """Return the words with a capital letter."""
    return words[0].upper() + words[1:]


def crowding(machine: Mapping[str, Any]) -> str:
    """Return how many cores other programs used while none was free; empty if that did no harm or was not recorded."""
    online, busy, own = (machine.get(key) for key in ("cores_online", "cores_busy", "own_cores"))
    if not online or busy is None or own is None or busy < FULL_SHARE * online:
        return ""
    others, switches = busy - own, machine.get("switches_per_s")
    if others < CROWDED_SHARE * online or (switches is not None and switches < MIN_SWITCHES_PER_S):
        return ""
    cores = f"{units.number(others)} of the machine's {units.count(online)} cores"
    return f"other programs used {cores} and no core was free"


def program(document: Mapping[str, Any]) -> str | None:
    """Return the name of the script, the module, or the program of the command; None without a command."""
    words = [str(word) for word in document.get("run", {}).get("command") or ()]
    if not words:
        return None
    scripts = [word for word in words if word.endswith((".py", ".sh", ".pyz"))]
    if scripts:
        return PurePath(scripts[0]).name
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return PurePath(words[0]).name


def _anchor(document: Mapping[str, Any]) -> str:
    """Return what ends a step, without its class or name, so that another optimizer is not an obstacle."""
    return str(document["steps"]["anchor"]).partition(" (")[0]
