"""The facts about a track or a host, by key."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.timeline.lookup import facts_of, host_facts


def find_facts(evidence: Evidence, track: int) -> dict[str, str]:
    """Return the facts about a track (a trainer's ``process``, a GPU), the last value of each key."""
    return facts_of(evidence.timeline, track)


def find_host_facts(evidence: Evidence, host: str) -> dict[str, str]:
    """Return the facts about a host: cores_usable, cpu_quota_cores, cpu_model and so on."""
    return host_facts(evidence.timeline, host)


def torch_version(facts: dict[str, str]) -> tuple[int, ...]:
    """Return the first two numbers of the version of torch in a process's facts; (0, 0) if unknown."""
    numbers = facts.get("torch", "").split("+")[0].split(".")[:2]
    return tuple(int(number) for number in numbers) if all(map(str.isdigit, numbers)) else (0, 0)
