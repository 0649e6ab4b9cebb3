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
