"""The problems that perfwrap finds: a folder per topic, a file per rule.

A rule belongs to the topic in whose folder it lies. TOPICS and each topic's RULES are the order of every list that is
shown, and, with the exceptions of ``priority``, the order in which rules claim time.
"""

from __future__ import annotations

from perfwrap.rules import (
    data_loading,
    gpu,
    health,
    host,
    host_sync,
    kernels,
    loop,
    ranks,
    recorder,
    run,
    transfers,
    wasted_work,
)
from perfwrap.rules.model import Rule

TOPICS = (
    data_loading,
    host_sync,
    wasted_work,
    loop,
    ranks,
    host,
    transfers,
    kernels,
    gpu,
    run,
    health,
    recorder,
)
"""In the order in which they are shown."""

RULES: tuple[Rule, ...] = tuple(rule for topic in TOPICS for rule in topic.RULES)
"""Every rule."""
