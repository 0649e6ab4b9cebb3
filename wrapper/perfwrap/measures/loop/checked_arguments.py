"""The samples of the training thread in the checks that torch.distributions makes of its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import PurePath

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import FRAME, is_program
from perfwrap.measures.loop.source_calls import called_names
from perfwrap.measures.loop.stacks import ENOUGH, OUTSIDE
from perfwrap.measures.trainers import Trainer

BASE = "/torch/distributions/distribution.py"
CHECKING = ("__init__", "_validate_sample")
"""Methods of the base class that check: its constructor does nothing else that takes time."""
CONSTRAINTS = "/torch/distributions/constraints.py"


class DistributionChecks(Struct, frozen=True):
    """Samples in checks: ``count`` of ``sampled``, all of the thread in the loop."""

    count: int
    sampled: int
    where: Line | None
    """The program's line that makes distributions with most of these samples; None if only libraries do."""

    @property
    def share(self) -> float:
        """The share of the loop."""
        return self.count / self.sampled


def find_distribution_checks(evidence: Evidence, trainer: Trainer) -> DistributionChecks | None:
    """Return py-spy's samples in checks of distributions; None with too few."""
    account = evidence.get(find_account, trainer)
    rows = evidence.timeline.stacks.filter(
        pl.col("time").is_between(account.start, account.end, closed="left"),
        pl.col("track") == trainer.thread,
        pl.col("source") == OUTSIDE,
    )
    stacks = rows.drop_nulls("stack").group_by("stack").agg(pl.col("weight").sum()).rows()
    return count_checks(stacks, partial(called_names, evidence.timeline.run))


def count_checks(
    stacks: Sequence[tuple[str, int]], called: Callable[[str, int], Collection[str]]
) -> DistributionChecks | None:
    """Return the checks in stacks with their weights; None with too few. ``called`` returns what a line calls."""
    count = 0
    lines: Counter[tuple[bool, Line]] = Counter()
    for stack, weight in stacks:
        frames = [(frame["file"], frame["function"], int(frame["line"])) for frame in FRAME.finditer(stack)]
        first = next((at for at, (file, function, _) in enumerate(frames) if _checks(file, function)), None)
        if first is None:
            continue
        count += weight
        own = next((at for at in reversed(range(first)) if is_program(frames[at][0])), None)
        if own is not None:
            file, function, line = frames[own]
            # py-spy may read the line when the call has ended: the source tells which one makes the distribution.
            kind = PurePath(frames[own + 1][0]).stem.replace("_", "")
            makes = any(name.rpartition(".")[2].lower() == kind for name in called(file, line))
            lines[makes, Line(file, line, function)] += weight
    if count < ENOUGH:
        return None
    # The argument belongs where a distribution is made, not where it is used.
    where = max(lines, key=lambda key: (key[0], lines[key], key[1].line), default=None)
    return DistributionChecks(count, sum(weight for _, weight in stacks), where and where[1])


def _checks(file: str, function: str) -> bool:
    """Return whether a frame is in a check."""
    return file.endswith(CONSTRAINTS) or (file.endswith(BASE) and function.rpartition(".")[2] in CHECKING)
