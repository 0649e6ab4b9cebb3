"""The ranks of a job beside each other: step, waiting for the others, who comes last, and what their time goes to."""

from __future__ import annotations

from collections import Counter

from perfwrap import units
from perfwrap.diagnosis import Diagnosis, RankFigures
from perfwrap.reports.page import Page

MOST_ROWS = 8
"""Ranks that are told one by one; of more, the ones that others wait for most."""
LEAST_PART = 0.05
"""A part is named beside a rank from this share of its loop on."""
MOST_PARTS = 3
NAME, STEP, SHARE = 20, 11, 8
"""Widths of the columns."""


def summary(diagnosis: Diagnosis) -> str:
    """Return how the ranks wait for each other and whose steps are told; empty where there is nothing to say of it."""
    if len(diagnosis.ranks) < 2:
        return ""
    return " ".join(sentence for sentence in (_waiting(diagnosis), _whose(diagnosis)) if sentence)


def _waiting(diagnosis: Diagnosis) -> str:
    """Return how the ranks wait for each other, in one or two sentences; empty where they are no ranks."""
    skew = diagnosis.skew
    if skew is None:
        if diagnosis.ranks[0].rank is None:
            return ""
        return "How long ranks wait for each other was not seen: no collectives of the program, no DDP on one machine."
    how = "measured in collectives" if skew.measured else "inferred where it lies in backward passes"
    latest = skew.latest.trainer.name
    whom = f"{units.share(skew.latest_share)} of it for {latest}"
    turns = "" if skew.always_the_same else ", so in turn"
    waits = f"On average a rank waits for others {units.share(skew.waiting_share)} of its time"
    return f"{waits}, {whom}{turns} ({how})." if skew.latest_share else f"{waits} ({how})."


def _whose(diagnosis: Diagnosis) -> str:
    """Return whose steps are told where not all trained at the same time; empty where they did."""
    turns = _turns(diagnosis)
    if len(turns) < 2:
        return ""
    name = diagnosis.steps.trainer
    alone = max(turns.values()) == 1
    told = (
        f"and samples/s are those of {name}" if alone else f"are those of {name}, samples/s of all beside it"
    )
    return f"Steps {told}; where the time goes is of all trainers."


def trainers(diagnosis: Diagnosis) -> str:
    """Return e.g. ``4 trainers``, ``4 trainers in 2 starts`` of ranks, or ``4 trainers one after another``."""
    starts = Counter(figures.start for figures in diagnosis.ranks)
    if len(starts) > 1:
        return f"{units.counted(max(starts.values()), 'trainer')} in {units.count(len(starts))} starts"
    words, most = units.counted(len(diagnosis.ranks), "trainer"), max(_turns(diagnosis).values())
    if most == len(diagnosis.ranks):
        return words
    return f"{words} one after another" if most == 1 else f"{words}, at most {units.count(most)} at once"


def processes(diagnosis: Diagnosis) -> str:
    """Return e.g. ``2 trainers, 1 launcher, 4 DataLoader workers``; empty where only one process trained."""
    if sum(diagnosis.processes.values()) < 2:
        return ""
    return ", ".join(
        units.counted(count, name, name if name.endswith("Python") else "")
        for name, count in diagnosis.processes.items()
    )


def draw_ranks(diagnosis: Diagnosis, page: Page) -> None:
    """Draw a line for each rank, or for those that matter most; nothing where only one process trained."""
    if len(diagnosis.ranks) < 2:
        return
    page.blank()
    starts = {figures.start for figures in diagnosis.ranks}
    beside = " beside each other" if len(starts) > 1 or len(_turns(diagnosis)) == 1 else ""
    page.line((trainers(diagnosis) + beside, "bold"))
    page.paragraph(summary(diagnosis), indent=2)
    page.paragraph(processes(diagnosis), style="dim", indent=2, hanging="Processes: ")
    heads = ("", "step", "waits", "is last", "its own time")
    page.line((_row(*heads), "dim"), indent=2)
    shown = _shown(diagnosis.ranks)
    for figures in shown:
        row = _row(page.fitted(figures.name, NAME), *_cells(diagnosis, figures), _parts(figures))
        page.line((page.clipped(row, page.width - 2), ""), indent=2)
    rest = [figures for figures in diagnosis.ranks if figures not in shown]
    if rest:
        page.paragraph(_rest(diagnosis, rest), style="dim", indent=2)


def last_share(figures: RankFigures) -> float | None:
    """Return the share of the meetings in which a rank came last; None where none is known."""
    skew = figures.skew
    return skew.last / skew.meetings if skew is not None and skew.meetings else None


def wait_share(diagnosis: Diagnosis, figures: RankFigures) -> float | None:
    """Return what of a step a rank waits for others; None where that is not known."""
    whole = diagnosis.skew.step_ns if diagnosis.skew is not None else 0.0
    return None if figures.skew is None or not whole else min(1.0, figures.skew.wait_ns / whole)


def _turns(diagnosis: Diagnosis) -> Counter[int]:
    """Return how many trainers each turn has."""
    return Counter(figures.turn for figures in diagnosis.ranks)


def _shown(ranks: tuple[RankFigures, ...]) -> list[RankFigures]:
    """Return the ranks that are told one by one, in their order."""
    late = sorted(ranks, key=lambda figures: -(figures.skew.caused_ns if figures.skew else 0.0))
    chosen = late[:MOST_ROWS]
    return [figures for figures in ranks if figures in chosen]


def _cells(diagnosis: Diagnosis, figures: RankFigures) -> tuple[str, str, str]:
    """Return the step, the wait and how often it is last."""
    waits, last = wait_share(diagnosis, figures), last_share(figures)
    return (
        units.duration(figures.median_ns, 3),
        "" if waits is None else units.share(waits),
        "" if last is None else units.share(last),
    )


def _row(name: str, step: str, waits: str, last: str, parts: str) -> str:
    return f"{name:<{NAME}}{step:>{STEP}}{waits:>{SHARE}}{last:>{SHARE + 1}}  {parts}"


def _parts(figures: RankFigures) -> str:
    """Return the largest parts of a rank's own loop, without what of them is waiting for others."""
    whole = sum(figures.account.values())
    own = {part: ns - figures.waiting.get(part, 0) for part, ns in figures.account.items()}
    shares = sorted(((ns / whole, part) for part, ns in own.items() if whole), reverse=True)
    large = [f"{part} {units.share(share)}" for share, part in shares[:MOST_PARTS] if share >= LEAST_PART]
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
