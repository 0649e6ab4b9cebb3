"""The ranks of a job side by side: step time, waiting for others, which rank is last, and where its time goes."""

from __future__ import annotations

from collections import Counter

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, RankFigures
from perfwrap.reports.terminal.page import Page

MAX_ROWS = 8
"""Ranks that are shown; of more, those that others wait for most."""
MIN_PART = 0.05
"""Parts of a rank's loop with a smaller share are not named."""
MAX_PARTS = 3
PROCESSES = "training processes"
NAME, STEP, SHARE = 20, 11, 8
"""Widths of the columns."""


def summary(diagnosis: Diagnosis) -> str:
    """Return how the ranks wait for each other and whose steps are shown; empty for one rank."""
    if len(diagnosis.ranks) < 2:
        return ""
    return " ".join(sentence for sentence in (_waiting(diagnosis), _whose(diagnosis)) if sentence)


def _waiting(diagnosis: Diagnosis) -> str:
    """Return how the ranks wait for each other, in one or two sentences; empty for processes without ranks."""
    skew = diagnosis.skew
    if skew is None:
        if diagnosis.ranks[0].rank is None:
            return ""
        return (
            "The time that ranks wait for each other is unknown: no collectives of the program, and no DDP on one "
            "machine, were seen."
        )
    how = "measured in collectives" if skew.measured else "estimated for backward passes"
    latest = skew.latest.trainer.name
    whom = f"{units.share(skew.latest_share)} of that for {latest}"
    others = "" if skew.always_the_same else ", the rest for different ranks"
    waits = f"On average, a rank waits for others {units.share(skew.waiting_share)} of its time"
    return f"{waits}, {whom}{others} ({how})." if skew.latest_share else f"{waits} ({how})."


def _whose(diagnosis: Diagnosis) -> str:
    """Return whose steps are shown if not all trained at the same time; empty if they did."""
    groups = _groups(diagnosis)
    if len(groups) < 2:
        return ""
    name = diagnosis.steps.trainer
    alone = max(groups.values()) == 1
    whose = (
        f"and samples/s are those of {name}" if alone else f"are those of {name}, samples/s of all beside it"
    )
    return f"Steps {whose}; where the time goes is of all."


def trainers(diagnosis: Diagnosis) -> str:
    """Return e.g. ``4 training processes``; with ``in 2 starts`` of ranks, or ``one after another``, if so."""
    many, shared = len(diagnosis.ranks), _share_a_process(diagnosis)
    starts = Counter(figures.start for figures in diagnosis.ranks)
    if len(starts) > 1:
        return f"{training_processes(max(starts.values()), shared)} in {units.count(len(starts))} starts"
    words, most = training_processes(many, shared), max(_groups(diagnosis).values())
    if most == many:
        return words
    return (
        f"{words} one after another" if most == 1 else f"{words}, up to {units.count(most)} at the same time"
    )


def processes(diagnosis: Diagnosis) -> str:
    """Return e.g. ``2 training processes, 1 launcher, 4 DataLoader workers``; empty for a single process."""
    if sum(diagnosis.processes.values()) < 2:
        return ""
    return ", ".join(
        training_processes(count)
        if name == "trainer"
        else units.counted(count, name, name if name.endswith("Python") else "")
        for name, count in diagnosis.processes.items()
    )


def training_processes(count: int, shared: bool = False) -> str:
    """Return e.g. ``4 training processes``, or ``4 training threads`` if some of them share a process."""
    return units.counted(
        count, "training thread" if shared else "training process", "" if shared else PROCESSES
    )


def _share_a_process(diagnosis: Diagnosis) -> bool:
    """Return whether several training threads belong to one process."""
    known = [(figures.host, figures.pid) for figures in diagnosis.ranks if figures.pid is not None]
    return len(set(known)) < len(known)


def draw_ranks(diagnosis: Diagnosis, page: Page) -> None:
    """Draw a line for each rank, or for the most important ones; nothing for a single process."""
    if len(diagnosis.ranks) < 2:
        return
    page.blank()
    starts = {figures.start for figures in diagnosis.ranks}
    beside = " side by side" if len(starts) > 1 or len(_groups(diagnosis)) == 1 else ""
    page.line((trainers(diagnosis) + beside, "bold"))
    page.paragraph(summary(diagnosis), indent=2)
    page.paragraph(processes(diagnosis), style="dim", indent=2, hanging="Processes: ")
    heads = ("", "step", "waits", "is last", "own time")
    page.line((_row(*heads), "dim"), indent=2)
    shown = _shown(diagnosis.ranks)
    for figures in shown:
        row = _row(page.fitted(figures.name, NAME), *_cells(diagnosis, figures), _parts(figures))
        page.line((page.clipped(row, page.width - 2), ""), indent=2)
    rest = [figures for figures in diagnosis.ranks if figures not in shown]
    if rest:
        page.paragraph(_rest(diagnosis, rest), style="dim", indent=2)


def last_share(figures: RankFigures) -> float | None:
    """Return the share of synchronizations in which a rank was last; None if none is known."""
    skew = figures.skew
    return skew.last / skew.sync_points if skew is not None and skew.sync_points else None


def wait_share(diagnosis: Diagnosis, figures: RankFigures) -> float | None:
    """Return the share of a step that a rank waits for others; None if unknown."""
    whole = diagnosis.skew.step_ns if diagnosis.skew is not None else 0.0
    return None if figures.skew is None or not whole else min(1.0, figures.skew.wait_ns / whole)


def _groups(diagnosis: Diagnosis) -> Counter[int]:
    """Return the number of training processes of each group, which trained at the same time."""
    return Counter(figures.group for figures in diagnosis.ranks)


def _shown(ranks: tuple[RankFigures, ...]) -> list[RankFigures]:
    """Return the ranks that are shown, in their order."""
    late = sorted(ranks, key=lambda figures: -(figures.skew.caused_ns if figures.skew else 0.0))
    chosen = late[:MAX_ROWS]
    return [figures for figures in ranks if figures in chosen]


def _cells(diagnosis: Diagnosis, figures: RankFigures) -> tuple[str, str, str]:
    """Return step time, waiting, and how often the rank is last."""
    waits, last = wait_share(diagnosis, figures), last_share(figures)
    return (
        units.duration(figures.median_ns, 3),
        "" if waits is None else units.share(waits),
        "" if last is None else units.share(last),
    )


def _row(name: str, step: str, waits: str, last: str, parts: str) -> str:
    return f"{name:<{NAME}}{step:>{STEP}}{waits:>{SHARE}}{last:>{SHARE + 1}}  {parts}"


def _parts(figures: RankFigures) -> str:
    """Return the largest parts of a rank's loop, without the time waiting for others."""
    whole = sum(figures.account.values())
    own = {part: ns - figures.waiting.get(part, 0) for part, ns in figures.account.items()}
    shares = sorted(((ns / whole, part) for part, ns in own.items() if whole), reverse=True)
    large = [f"{part} {units.share(share)}" for share, part in shares[:MAX_PARTS] if share >= MIN_PART]
    return ", ".join(large)


def _rest(diagnosis: Diagnosis, ranks: list[RankFigures]) -> str:
    """Return the other ranks in one sentence."""
    steps = [figures.median_ns for figures in ranks if figures.median_ns is not None]
    waits = [share for figures in ranks if (share := wait_share(diagnosis, figures)) is not None]
    words = f"{units.counted(len(ranks), 'more rank')}"
    if steps:
        words += f": step {units.duration(min(steps), 3)} to {units.duration(max(steps), 3)}"
    if waits:
        words += f", waiting {units.share(min(waits))} to {units.share(max(waits))}"
    return words + "."
