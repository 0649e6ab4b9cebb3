"""The start takes long: much time passes before the first step is done.

What it finds
    At least 5 s until the end of the first step, not counting the start of Python and imports, if that is at least 10 %
    of the whole run. Imports of other packages than torch count if they make this at least half of the run, or if the
    verdict is start-up-bound.

Why it costs
    It is paid for every start: each experiment, each restart after a failure, each rank.

How the gain is estimated
    The share is of the whole run, not of a step, and gets smaller in a longer run; so the finding is at most minor, and
    no saving per step is claimed.

How to fix
    Check the largest part: prepare data once and store it, load it lazily, start fewer workers, keep compiled graphs in
    a cache.

When it is wrong
    When the run was only a short test: before hours of training the same start does not matter.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.restarts import find_restarts
from perfwrap.measures.run.start_up import StartUp, find_start_up
from perfwrap.measures.run.whole_run import SETUP, UNAVOIDABLE, Place, WholeRun, find_whole_run_of
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope, locate, place
from perfwrap.timeline.lookup import samples_of

NEEDS = ("steps", "start_up")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_start_ns: int = 5 * units.SECOND
    """The program's own start-up time from which it is reported; importing torch alone takes 1 to 3 s."""
    large_share: float = 0.10
    """Share of the run below which the start is not reported."""
    large_imports_share: float = 0.50
    """Share of the run from which the start is reported because of imports."""
    min_allocations: int = 10
    """Fewer allocations are not mentioned."""


ALLOCATIONS = "device_allocs_count"
"""The recorder's series of driver allocations by the allocator, per GPU."""
NOT_OWN = ("interpreter", "import torch")
"""Parts that the program cannot change much."""
MAX_PACKAGES = 3

NAMES = {
    "interpreter": "starting Python",
    "import torch": "importing torch",
    "compilation": "compiling (torch.compile)",
    "loader start": "starting the loader",
    "first batch": "the first batch",
    "first forward": "the first forward pass",
    "first backward": "the first backward pass",
    "first optimizer": "the first optimizer step",
    "load": "loading files with torch.load",
    "sync": "reading values",
    "imports": "importing other packages",
    "rest": "the program's own code (dataset, model)",
}
"""The names of the parts in sentences."""

FIXES = {
    "compilation": "Keep the compiler's cache between runs (TORCHINDUCTOR_CACHE_DIR on a disk that stays), compile "
    "fewer functions, or train without torch.compile where the run is short.",
    "loader start": "Start fewer workers, or make the dataset cheaper to copy into them.",
    "first batch": "Open the dataset's files lazily, and start the workers earlier.",
    "first forward": "Keep the caches of compilation and autotuning between runs; both happen in the first forward "
    "pass.",
    "validation": "Validate after the first epoch instead of before it.",
    "imports": "Import only what this run uses, and large packages in the function that needs them.",
    "load": "Load only what is needed, memory-mapped (torch.load(..., mmap=True)).",
}
"""The fix for the largest part."""

NEARLY_ALL = 0.9
"""The share of the run from which on a process that lives as long is said to be the run."""
OTHER_FIX = "Prepare once what is the same in each run and store it, or load it when it is first needed."


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the time before the first step is done."""
    start = evidence.get(find_start_up, trainer)
    if start is None:
        return NotChecked("No step was found, so the start cannot be measured.")
    torch_ns = sum(start.parts.get(part, 0) for part in NOT_OWN)
    imports_ns = start.parts.get("imports", 0)
    own_ns = start.total_ns - torch_ns - imports_ns
    run_ns = max(1.0, start.total_ns / start.run_share)
    whole = evidence.get(find_whole_run_of, trainer)
    counted = [part for part in start.parts if part not in (*NOT_OWN, "imports")]
    if own_ns < limits.min_start_ns or own_ns < limits.large_share * run_ns:
        own_ns += imports_ns
        counted.append("imports")
        is_bound = whole is not None and whole.is_bound_before_steps
        if not is_bound and (own_ns < limits.min_start_ns or own_ns < limits.large_imports_share * run_ns):
            return Clear(
                f"The first step was done after {units.duration(start.total_ns)}, "
                f"{units.share(start.run_share)} of the run."
            )
    part = max(counted, key=lambda part: start.parts[part])
    setup = next((at for at in whole.places if at.part == SETUP), None) if whole and part == "rest" else None
    return [
        Finding(
            title=f"The first step is done after {units.duration(start.total_ns)}, "
            f"{units.duration(start.parts[part])} of it in {NAMES.get(part, part)}.",
            share=own_ns / run_ns,
            evidence=(
                *_words(start, _of_what(run_ns, whole, bool(evidence.get(find_restarts)))),
                *_places(setup, whole.imports if whole and imports_ns else ()),
                *_cold_allocator(evidence, trainer, limits),
            ),
            options=(Option(FIXES.get(part, OTHER_FIX), (1.0, 1.0)),),
            location=locate(setup.where) if setup else None,
            scope=Scope.RUN,
        )
    ]


def _places(setup: Place | None, imports: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Return the costliest line of the program's own code, and the packages whose import takes longest."""
    words = []
    if setup is not None and setup.where is not None:
        words.append(
            f"Of the program's own code, {units.duration(setup.ns)} are at {place(setup.where, '')} (sampled by "
            "py-spy)."
        )
    slow = [f"{package} {units.duration(ns)}" for package, ns in imports if package not in UNAVOIDABLE]
    if slow:
        words.append(f"Imports that take longest: {', '.join(slow[:MAX_PACKAGES])} (sampled by py-spy).")
    return tuple(words)


def _cold_allocator(evidence: Evidence, trainer: Trainer, limits: Limits) -> tuple[str, ...]:
    """Return that PyTorch's allocator filled in the warm-up and not afterwards, which is normal."""
    account = evidence.get(find_account, trainer)
    tracks = evidence.timeline.tracks
    for name in tracks.filter(pl.col("kind") == "gpu", pl.col("host") == trainer.host)["name"].to_list():
        rows = samples_of(evidence.timeline, name, ALLOCATIONS, trainer.host)
        before = rows.filter(pl.col("time") < account.start)["value"]
        if before.len() and int(before[-1]) >= limits.min_allocations and rows["value"][-1] == before[-1]:
            return (
                f"PyTorch asked the driver for GPU memory {units.counted(int(before[-1]), 'time')} before the steady "
                "loop and never in it, which is normal for its allocator.",
            )
    return ()


def _of_what(lifetime_ns: float, whole: WholeRun | None, is_restarted: bool) -> str:
    """Return what a share of the lifetime of the process is of: a launcher's run, e.g. Ray's, is longer."""
    if is_restarted:
        return "this start of the ranks"
    is_shorter = whole is not None and lifetime_ns < NEARLY_ALL * whole.total_ns
    return "the time of this process" if is_shorter else "the whole run"


def _words(start: StartUp, whole: str) -> tuple[str, ...]:
    """Return the main parts, and the warm-up."""
    large = sorted(start.parts.items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{NAMES.get(part, part)} {units.duration(ns)}" for part, ns in large if ns > 0)
    words = [f"That is {units.share(start.run_share)} of {whole}: {parts}."]
    if start.warm_up_excess_ns > 0 and start.warm_up_steps:
        words.append(
            f"{units.counted(start.warm_up_steps, 'warm-up step')} then took "
            f"{units.duration(start.warm_up_excess_ns)} more than the same number of steady ones."
        )
    return tuple(words)
