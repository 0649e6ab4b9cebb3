"""What stands in the way of comparing runs, and what should be known when they are compared all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeAlias

from perfwrap import units

LEAST_STEADY_STEPS = 20
"""As many as a verdict wants; see measures.steps."""

CROWDED_SHARE = 0.10
"""Share of a machine's cores that others may use while none is free. Beyond it the step time is theirs to decide."""

FULL_SHARE = 0.90
"""A machine whose cores are busy to this share has none free."""

LEAST_SWITCHES_PER_S = 20.0
"""How often a second the kernel takes a core away from a run that shares it with others: measured were 3 on a quiet
machine, 115 to 150 beside three others on two cores. A run with cores of its own on a full machine stays below."""

ALLOWABLE = {
    "host": "another kind of machine",
    "gpu": "another GPU",
    "torch": "another version of PyTorch",
    "command": "another program",
    "world": "another number of processes that train",
    "batch": "another batch size",
    "anchor": "steps that end with something else",
    "load": "a machine that others were busy on",
}
"""Every difference that can be allowed, because it is the one that is to be measured, in words."""


Run: TypeAlias = tuple[str, Mapping[str, Any]]
"""A run's name, and what its diagnosis.json says."""

Side: TypeAlias = Sequence[Run]
"""One run, or several of the same."""


@dataclass(frozen=True)
class Obstacle:
    """One reason why runs cannot be compared; ``kind`` is of ALLOWABLE, or ``steps``, which cannot be allowed."""

    kind: str
    sentence: str


def find_obstacles(before: Side, after: Side) -> tuple[Obstacle, ...]:
    """Return all that stands in the way of comparing two sides; all their runs are held against the first."""
    runs = _called(before, after)
    _, reference = runs[0]
    found = [*_short(runs)]
    for _, other in runs[1:]:
        found += _differences(reference, other)
    return tuple(dict.fromkeys([*found, *_loaded(runs)]))


def find_cautions(before: Side, after: Side) -> tuple[str, ...]:
    """Return what does not stand in the way and should be known, in sentences."""
    return tuple(dict.fromkeys([*_cautions(_called(before, after)), *_order(before, after)]))


def _called(before: Side, after: Side) -> list[Run]:
    """Return all runs with what sentences call them."""
    if len(before) == len(after) == 1:
        return [("the first run", before[0][1]), ("the second run", after[0][1])]
    return [(f"run {name}", document) for name, document in (*before, *after)]


def _short(runs: Sequence[Run]) -> Iterator[Obstacle]:
    """Look at how many steps there are."""
    for which, document in runs:
        steady = document["steps"]["steady"]
        if steady < LEAST_STEADY_STEPS:
            few = f"{_capital(which)} has {units.counted(steady, 'steady step')}"
            yield Obstacle("steps", f"{few}; {LEAST_STEADY_STEPS} are the least that tell anything.")


def _loaded(runs: Sequence[Run]) -> Iterator[Obstacle]:
    """Look at who else used the machine."""
    for which, document in runs:
        crowd = crowding(document.get("machine") or {})
        if crowd:
            yield Obstacle("load", f"While {which} went on, {crowd}: its step times say little.")


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Obstacle]:
    """Look at one thing after the other; what is known of neither run is in nobody's way."""
    old, new = before["conditions"], after["conditions"]
    for key, what in (("host/cpu_model", "processor"), ("host/cores_usable", "number of usable cores")):
        yield from _different("host", f"The {what} differs", old.get(key), new.get(key))
    yield from _different("gpu", "The GPU differs", old.get("gpu"), new.get("gpu"))
    for key in ("torch", "torch_cuda"):
        what = "PyTorch" if key == "torch" else "PyTorch's CUDA"
        yield from _different("torch", f"The version of {what} differs", old.get(key), new.get(key))
    yield from _different("command", "The program differs", program(before), program(after))
    for key in ("trainers", "world_size"):
        words = "The number of processes that train differs"
        yield from _different("world", words, old.get(key), new.get(key), both=key == "world_size")
    key = "samples_per_step"
    yield from _different("batch", "The samples of a step differ", old.get(key), new.get(key), both=True)
    yield from _different("anchor", "What ends a step differs", _anchor(before), _anchor(after), both=True)


def _different(
    kind: str, words: str, before: str | None, after: str | None, both: bool = False
) -> Iterator[Obstacle]:
    """Yield an obstacle where two things differ; where ``both`` must be known, one alone tells nothing."""
    if before != after and not (both and not (before and after)):
        yield Obstacle(kind, f"{words}: {before or 'not known'} and {after or 'not known'}.")


def _cautions(runs: Sequence[Run]) -> Iterator[str]:
    """Look at what makes a comparison weaker, or what a reader would want to know."""
    documents = [document for _, document in runs]
    hosts = list(dict.fromkeys(one["conditions"].get("host/name", "not known") for one in documents))
    if len(hosts) > 1:
        names = f"{', '.join(hosts[:-1])} and {hosts[-1]}"
        count = "two machines" if len(hosts) == 2 else "several machines"
        yield f"The runs were made on {count} of the same kind ({names}); how much those differ is not known."
    for which, document in runs:
        exit_ = document.get("run", {}).get("exit")
        if isinstance(exit_, dict) and exit_.get("code") != 0:
            how = f"signal {exit_['signal']}" if "signal" in exit_ else f"status {exit_.get('code')}"
            yield f"{_capital(which)} ended with {how}."
        if not document.get("machine") and document["steps"]["steady"]:
            yield f"Whether others were busy on the machine of {which} was not watched."
    versions = [document.get("run", {}).get("perfwrap") for document in documents]
    if any(version != versions[0] for version in versions):
        yield "The runs were recorded by different versions of perfwrap."


def _order(before: Side, after: Side) -> Iterator[str]:
    """Say where the sides did not take turns, and could have."""
    times = [
        [document.get("run", {}).get("start_wall_ns") for _, document in side] for side in (before, after)
    ]
    known = [[time for time in side if isinstance(time, int)] for side in times]
    if min(map(len, times)) < 2 or known != times:
        return
    if max(known[0]) < min(known[1]) or max(known[1]) < min(known[0]):
        yield (
            "All runs of one side were made before those of the other: what changed on the machine in between "
            "would look like a difference. Make them in turn."
        )


def _capital(words: str) -> str:
    """Return the words as they begin a sentence."""
    return words[0].upper() + words[1:]


def crowding(machine: Mapping[str, Any]) -> str:
    """Say how many cores others used where none was free; nothing where they did no harm or nobody watched."""
    online, busy, own = (machine.get(key) for key in ("cores_online", "cores_busy", "own_cores"))
    if not online or busy is None or own is None or busy < FULL_SHARE * online:
        return ""
    others, switches = busy - own, machine.get("switches_per_s")
    if others < CROWDED_SHARE * online or (switches is not None and switches < LEAST_SWITCHES_PER_S):
        return ""
    cores = f"{units.number(others)} of the machine's {units.count(online)} cores"
    return f"other programs kept {cores} busy and none was free"


def program(document: Mapping[str, Any]) -> str | None:
    """Return the script's own name or the module's, or the name of the command's program; None without a command."""
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
    """Return what ends a step, without the class or name that it had: another optimizer is a change like others."""
    return str(document["steps"]["anchor"]).partition(" (")[0]
