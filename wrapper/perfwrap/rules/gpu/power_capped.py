"""GPUs of a log lower their clocks under load: at their power limit, or at a power below it that something else sets.

What it finds
    In a log of GPUs (nvidia-smi, dmon) without a record of the program: reasons for lowered clocks that the driver
    reports in at least 10 % of the samples; or, at a utilization of at least 90 %, clocks at least 8 % below the
    highest one known (in the log, or of the board with that name), while the power stays within a narrow band below a
    ceiling. If that ceiling is below 90 % of the power limit, something else limits the GPUs: the power supply of the
    machine or rack, heat, or a lower limit.

Why it costs
    Compute-bound kernels take longer by the loss of clock speed.

How the gain is estimated
    Estimated: at best all of the loss of clock speed, at worst nothing: memory-bound kernels do not need the clocks.

How to fix
    Ask the administrator of the machine for the power limit and the cooling (nvidia-smi -q -d POWER,PERFORMANCE shows
    the limits and the reasons). Lower clocks on purpose save energy.

When it is wrong
    The highest clock of a log may be that of a short moment with little load. Clocks fall a little under any full load.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import Gpu
from perfwrap.measures.gpu.log_use import GpuUse, find_log_use
from perfwrap.rules.gpu.gpu_throttled import NAMES, POWER_LIMIT
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope
from perfwrap.rules.recordings import NO_RECORDING, is_imported, leave_training

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_loaded: int = 20
    """Samples under load that are enough."""
    min_reason_share: float = 0.10
    """Share of the samples with a reason from which it is reported."""
    max_clock_share: float = 0.92
    """Mean clock under load, of the highest known, up to which clocks count as lowered."""
    flat_share: float = 0.93
    """Mean power under load, of the highest, from which the power is at a ceiling."""
    below_limit: float = 0.90
    """The ceiling as a share of the power limit, up to which the limit is not what holds the GPU."""


check = leave_training


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Look for lowered clocks in a log."""
    if not is_imported(evidence):
        return NO_RECORDING
    uses = evidence.get(find_log_use)
    if not uses:
        return NotChecked("Needs a log of GPUs (nvidia-smi, dmon).")
    slowed = [use for use in uses if (use.gpu.throttled_share or 0.0) >= limits.min_reason_share]
    if slowed:
        return [_by_reasons(slowed, limits)]
    held = [use for use in uses if _is_held(use, limits)]
    if held:
        return [_by_power(held, limits)]
    known = [use for use in uses if use.loaded_hertz is not None or use.gpu.throttled_share is not None]
    if not known:
        return NotChecked("Needs clocks.sm and power.draw, or clocks_event_reasons, in the log.")
    return Clear("Clocks under load are not lowered.")


def _is_held(use: GpuUse, limits: Limits) -> bool:
    """Return whether a loaded GPU has lowered clocks at a constant power."""
    if use.loaded < limits.min_loaded or not use.loaded_hertz or not use.top_hertz:
        return False
    if not use.loaded_watts or not use.top_watts:
        return False
    is_slow = use.loaded_hertz <= limits.max_clock_share * use.top_hertz
    return is_slow and use.loaded_watts >= limits.flat_share * use.top_watts


def _by_reasons(uses: Sequence[GpuUse], limits: Limits) -> Finding:
    """Return the finding from the reasons that the driver gives."""
    reasons = list(dict.fromkeys(reason for use in uses for reason in use.gpu.throttle_reasons))
    named = ", ".join(NAMES.get(reason, reason.replace("_", " ")) for reason in reasons) or "unknown reasons"
    share = max(use.gpu.throttled_share or 0.0 for use in uses)
    is_power = reasons == [POWER_LIMIT]
    lost = max(_lost(use) for use in uses)
    return Finding(
        title=f"{_names(uses)} lowered their clocks in up to {units.share(share)} of the samples because of {named}.",
        share=lost or share,
        evidence=_words(uses, limits),
        options=_options(is_power, lost),
        verdict="throttled",
        scope=Scope.RECORDING,
        max_severity="minor" if is_power and not _is_below(uses, limits) else "critical",
        min_severity="minor",
    )


def _by_power(uses: Sequence[GpuUse], limits: Limits) -> Finding:
    """Return the finding from power and clocks."""
    lost = max(_lost(use) for use in uses)
    top = max(use.top_watts or 0.0 for use in uses)
    known = [use.limit_watts for use in uses if use.limit_watts]
    of_limit = f" of {units.number(max(known), 3)} W" if known else ""
    return Finding(
        title=f"{_names(uses)} never exceed {units.number(top, 3)}{of_limit or ' W'} while their clocks under load are "
        f"{units.share(lost)} below the highest: their power is capped.",
        share=lost,
        evidence=_words(uses, limits),
        options=_options(not _is_below(uses, limits), lost),
        verdict="throttled",
        confidence="inferred",
        scope=Scope.RECORDING,
        max_severity="critical" if _is_below(uses, limits) else "minor",
        min_severity="minor",
    )


def _is_below(uses: Sequence[GpuUse], limits: Limits) -> bool:
    """Return whether the GPUs stay far below the power limit in the log."""
    return any(
        use.limit_watts and use.top_watts and use.top_watts <= limits.below_limit * use.limit_watts
        for use in uses
    )


def _lost(use: GpuUse) -> float:
    """Return how far the clocks under load are below the highest; 0 if unknown."""
    if not use.loaded_hertz or not use.top_hertz:
        return 0.0
    return max(0.0, 1.0 - use.loaded_hertz / use.top_hertz)


def _words(uses: Sequence[GpuUse], limits: Limits) -> tuple[str, ...]:
    """Return power and clocks under load."""
    words = []
    watts = [use.loaded_watts for use in uses if use.loaded_watts]
    clocks = [(use.loaded_hertz, use.top_hertz) for use in uses if use.loaded_hertz and use.top_hertz]
    if watts:
        words.append(
            f"Mean power under load (utilization of at least 90 %): {units.number(sum(watts) / len(watts), 3)} W."
        )
    if clocks:
        mean, top = sum(clock for clock, _ in clocks) / len(clocks), max(top for _, top in clocks)
        words.append(
            f"Mean clock under load: {mean / 1e6:.0f} MHz, the highest known is {top / 1e6:.0f} MHz."
        )
    if _is_below(uses, limits):
        words.append(
            "That is far below the power limit, so the limit of the card is not the cause: the power of the "
            "machine or rack, heat, or a limit that the log does not show."
        )
    return tuple(words)


def _options(is_limit: bool, lost: float) -> tuple[Option, ...]:
    """Return what to do about it; ``is_limit``: the card's own power limit is the cause."""
    gain = (1.0 - lost, 1.0)
    if is_limit:
        return (
            Option("Ask the administrator whether the power limit can be raised (nvidia-smi -pl).", gain),
        )
    return (
        Option(
            "Let the administrator look for what caps the power: nvidia-smi -q -d POWER,PERFORMANCE shows limits and "
            "reasons.",
            gain,
        ),
    )


def _names(uses: Sequence[GpuUse]) -> str:
    """Return e.g. ``8 GPUs``, or the name of the only one."""
    first: Gpu = uses[0].gpu
    return first.name if len(uses) == 1 else f"{units.count(len(uses))} GPUs"
