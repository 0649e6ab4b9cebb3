"""What stands in the way of comparing two runs, and what should be known when they are compared all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

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


@dataclass(frozen=True)
class Obstacle:
    """One reason why two runs cannot be compared; ``kind`` is of ALLOWABLE, or ``steps``, which cannot be allowed."""

    kind: str
    sentence: str


def find_obstacles(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Obstacle, ...]:
    """Return all that stands in the way of comparing two runs, given as what their diagnosis.json says."""
    return tuple(_obstacles(before, after))


def find_cautions(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what does not stand in the way and should be known, in sentences."""
    return tuple(_cautions(before, after))


def _obstacles(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Obstacle]:
    """Look at one thing after the other; what is known of neither run is in nobody's way."""
    old, new = before["conditions"], after["conditions"]
    for document, which in ((before, "first"), (after, "second")):
        steady = document["steps"]["steady"]
        if steady < LEAST_STEADY_STEPS:
            few = f"The {which} run has {units.counted(steady, 'steady step')}"
            yield Obstacle("steps", f"{few}; {LEAST_STEADY_STEPS} are the least that tell anything.")
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
    for document, which in ((before, "first"), (after, "second")):
        crowd = crowding(document.get("machine") or {})
        if crowd:
            yield Obstacle("load", f"While the {which} run went on, {crowd}: its step times say little.")


def _different(
    kind: str, words: str, before: str | None, after: str | None, both: bool = False
) -> Iterator[Obstacle]:
    """Yield an obstacle where two things differ; where ``both`` must be known, one alone tells nothing."""
    if before != after and not (both and not (before and after)):
        yield Obstacle(kind, f"{words}: {before or 'not known'} and {after or 'not known'}.")


def _cautions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Look at what makes a comparison weaker, or what a reader would want to know."""
    old, new = before["conditions"], after["conditions"]
    if old.get("host/name") != new.get("host/name"):
        names = f"{old.get('host/name', 'not known')} and {new.get('host/name', 'not known')}"
        yield f"The runs were made on two machines of the same kind ({names}); how much those differ is not known."
    for document, which in ((before, "first"), (after, "second")):
        exit_ = document.get("run", {}).get("exit")
        if isinstance(exit_, dict) and exit_.get("code") != 0:
            how = f"signal {exit_['signal']}" if "signal" in exit_ else f"status {exit_.get('code')}"
            yield f"The {which} run ended with {how}."
        if not document.get("machine") and document["steps"]["steady"]:
            yield f"Whether others were busy on the machine of the {which} run was not watched."
    if before.get("run", {}).get("perfwrap") != after.get("run", {}).get("perfwrap"):
        yield "The runs were recorded by different versions of perfwrap."


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
