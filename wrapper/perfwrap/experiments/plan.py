"""The variants of a trial: named ones, a preset, or those that the findings of the baseline suggest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import BY_NAME
from perfwrap.experiments.variants import BASELINE as BASELINE
from perfwrap.experiments.variants import JOINT, Variant, name_of, parse, value_of
from perfwrap.rules.model import Finding, Option

WORKER_COUNTS = (0, 1, 2, 4, 8, 12)
MIN_TRIED_WORKERS = 2
"""Tried on any machine: workers that wait for a network or a disk need no core each."""

PRESETS: dict[str, tuple[str, ...]] = {
    "three-run": ("bf16", "bf16+compile"),
    "workers": tuple(f"workers={count}" for count in WORKER_COUNTS),
    "compile": ("compile", "compile=reduce-overhead", "compile=max-autotune"),
    "memory": ("expandable-segments", "no-empty-cache", "set-to-none"),
}

MAX_SUGGESTED = 8
"""Most experiments that a trial takes from the findings: each costs two runs or more."""


class Planned(Struct, frozen=True):
    """A variant, and the ratios of step times that its finding predicts, best and worst."""

    variant: Variant
    rule: str = ""
    predicted: tuple[float, float] | None = None


def named(words: Iterable[str]) -> tuple[Planned, ...]:
    """Return the variants that words of the command line name; PerfwrapError for an unknown one."""
    variants = (parse(word) for word in dict.fromkeys(words))
    return tuple(Planned(variant) for variant in variants)


def preset(name: str, cores: float) -> tuple[Planned, ...]:
    """Return the variants of a preset on a machine with so many cores; PerfwrapError for an unknown one."""
    if name not in PRESETS:
        raise PerfwrapError(f"--preset does not take {name!r}.", f"Use one of: {', '.join(PRESETS)}.")
    most = max(MIN_TRIED_WORKERS, int(cores))
    return tuple(
        Planned(variant) for variant in map(parse, PRESETS[name]) if _workers(variant) in range(most + 1)
    )


def suggested(findings: Sequence[Finding]) -> tuple[Planned, ...]:
    """Return the experiments of the findings, each once with its prediction.

    Those of best options come first, the most expensive finding before the others. Informational findings are skipped:
    they are not problems.
    """
    chosen: dict[str, Planned] = {}
    problems = [finding for finding in findings if not finding.informational]
    best = [(finding.rule, finding.options[0]) for finding in problems]
    others = [(finding.rule, option) for finding in problems for option in finding.options[1:]]
    for rule, option in (*best, *others):
        for name in _experiments(option):
            known = all(name_of(change) in BY_NAME for change in name.split(JOINT))
            if known and name not in chosen:
                chosen[name] = Planned(parse(name), rule, option.saving)
    return tuple(chosen.values())[:MAX_SUGGESTED]


def _experiments(option: Option) -> tuple[str, ...]:
    """Return the names of the variants that an option asks for."""
    if option.experiment is None:
        return ()
    return PRESETS.get(option.experiment, (option.experiment,))


def _workers(variant: Variant) -> int:
    """Return the number of workers of a variant; 0 if it does not set it."""
    given = [change for change in variant.changes if name_of(change) == "workers"]
    return int(value_of(given[0])) if given else 0
