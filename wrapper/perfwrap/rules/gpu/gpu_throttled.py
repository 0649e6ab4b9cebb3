"""The GPU runs at reduced clocks because of heat, power or its hardware.

What it finds
    Reasons for which the driver reduced the clocks (NVML) during at least 5 % of the training loop: heat, hardware
    slowdown, power brake, power limit; and temperatures above 83 °C, or above the card's own limit if that is higher.

Why it costs
    All work on the GPU takes longer by the loss of clock speed.

How the gain is estimated
    Measured if the clocks were sampled: how far below their maximum they were for reasons other than the power limit.
    At the power limit no gain is claimed: a GPU that computes hard normally reaches it.

How to fix
    Heat: airflow, fans, dust, room temperature, or a lower power limit that keeps clocks constant. Hardware slowdown
    and power brake: power supply and cables. A power limit below the default: nvidia-smi -pl (needs administrator
    rights).

When it is wrong
    The maximum clock is that of a cool card under little load; a part of the loss is normal.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.gpu_state import REASON, Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus, gpu_samples
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    hot_celsius: float = 83.0
    """The temperature at which a GTX 1080 reduces its clocks (review by ComputerBase; other cards differ, a GTX 980 has
    80 according to TechPowerUp); used if the card reports no higher limit."""
    lowered_share: float = 0.9
    """Share of the default power limit below which it was lowered on purpose."""


POWER_LIMIT = "power_cap"
"""The one reason that is normal for a GPU that computes hard."""

NAMES = {
    "heat": "heat (driver)",
    "hardware_heat": "heat (hardware)",
    "hardware_slowdown": "hardware slowdown",
    "power_brake": "an external power brake",
    "board_limit": "the board limit",
    "reliability": "reliability",
    POWER_LIMIT: "the power limit",
}
"""The names of NVML's reasons in sentences."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for reduced clocks and heat."""
    gpus = evidence.get(find_own_gpus, trainer)
    if not gpus:
        return NotChecked("None of the recorded GPUs is known to belong to this training thread.")
    known = [
        gpu for gpu in gpus if gpu.throttled_share is not None or _hottest(evidence, trainer, gpu) is not None
    ]
    if not known:
        return NotChecked("This GPU reports neither its temperature nor why clocks are reduced.")
    found = [finding for gpu in known if (finding := _judge(evidence, trainer, gpu, limits)) is not None]
    return found or Clear(
        f"Clocks were reduced in {units.share(known[0].throttled_share)} of the samples, only by the power limit."
        if known[0].throttle_reasons
        else "No reason for reduced clocks lasted long."
    )


def _judge(evidence: Evidence, trainer: Trainer, gpu: Gpu, limits: Limits) -> Finding | None:
    """Return the problem of one GPU, if any."""
    serious = [reason for reason in gpu.throttle_reasons if reason != POWER_LIMIT]
    hottest = _hottest(evidence, trainer, gpu)
    words = _words(evidence, trainer, gpu, hottest, limits)
    if serious:
        lost = _lost(evidence, trainer, gpu, serious)
        named = ", ".join(NAMES.get(reason, reason) for reason in serious)
        return Finding(
            title=f"{gpu.name} runs at reduced clocks because of {named}.",
            share=lost,
            evidence=words,
            options=(
                Option("Check its cooling and power supply.", (1.0 - lost, 1.0 - lost / 2)),
                Option(
                    "Set a lower power limit, which keeps the clocks constant, if it cannot be cooled better.",
                    (1.0, 1.0),
                ),
            ),
            verdict="throttled",
            health=True,
        )
    limited = POWER_LIMIT in gpu.throttle_reasons and _was_lowered(evidence, gpu, limits)
    if limited or (hottest is not None and hottest > _hot(evidence, gpu, limits)):
        title = (
            f"{gpu.name} is limited by a power limit below its default."
            if limited
            else f"{gpu.name} gets as hot as {units.number(hottest or 0.0, 3)} °C."
        )
        advice = (
            "Ask your administrator about the power limit."
            if limited
            else "Check its cooling before its clocks are reduced."
        )
        return Finding(
            title,
            0.0,
            words,
            (Option(advice, (1.0, 1.0)),),
            informational=True,
        )
    return None


def _words(
    evidence: Evidence, trainer: Trainer, gpu: Gpu, hottest: float | None, limits: Limits
) -> tuple[str, ...]:
    """Return the reasons with their shares, clocks and temperature."""
    words = []
    shares = [
        f"{NAMES.get(reason, reason)} {units.share(_mean(evidence, trainer, gpu, REASON + reason))}"
        for reason in gpu.throttle_reasons
    ]
    if shares:
        words.append(f"Shares of the samples: {', '.join(shares)}.")
    clock, most = _mean(evidence, trainer, gpu, "sm_clock_hertz"), _fact(evidence, gpu, "sm_clock_max_hertz")
    if clock and most:
        words.append(f"Its mean clock is {units.share(clock / most)} of the maximum.")
    if hottest is not None:
        above = f", above {units.number(limits.hot_celsius)}" if hottest > limits.hot_celsius else ""
        words.append(f"The highest temperature is {units.number(hottest, 3)} °C{above}.")
    if POWER_LIMIT in gpu.throttle_reasons and _was_lowered(evidence, gpu, limits):
        usual = _fact(evidence, gpu, "power_limit_default_watts")
        words.append(
            f"Its power limit is {units.number(gpu.power_limit_watts or 0, 3)} W, the default "
            f"{units.number(usual or 0, 3)} W."
        )
    return tuple(words)


def _lost(evidence: Evidence, trainer: Trainer, gpu: Gpu, serious: list[str]) -> float:
    """Return the maximum share of the loop that reduced clocks cost; 0 if clocks were not sampled."""
    most = _fact(evidence, gpu, "sm_clock_max_hertz")
    clocks = gpu_samples(evidence, trainer, gpu, "sm_clock_hertz")
    if not most or clocks.is_empty():
        return 0.0
    held = max(_mean(evidence, trainer, gpu, REASON + reason) or 0.0 for reason in serious)
    slowest = float(clocks["value"].quantile(held / 2, "nearest") or most)
    return held * max(0.0, 1.0 - slowest / most)


def _was_lowered(evidence: Evidence, gpu: Gpu, limits: Limits) -> bool:
    """Return whether the power limit was set below the default."""
    usual = _fact(evidence, gpu, "power_limit_default_watts")
    return bool(usual and gpu.power_limit_watts and gpu.power_limit_watts < limits.lowered_share * usual)


def _hot(evidence: Evidence, gpu: Gpu, limits: Limits) -> float:
    """Return the temperature that counts as hot: the card's own limit if it is higher."""
    own = _fact(evidence, gpu, "temperature_max_celsius") or 0.0
    return max(limits.hot_celsius, own)


def _hottest(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> float | None:
    values = gpu_samples(evidence, trainer, gpu, "temperature_celsius")["value"]
    return None if values.is_empty() else float(values.max())  # type: ignore[arg-type]


def _mean(evidence: Evidence, trainer: Trainer, gpu: Gpu, metric: str) -> float | None:
    values = gpu_samples(evidence, trainer, gpu, metric)["value"]
    return None if values.is_empty() else float(values.mean())  # type: ignore[arg-type]


def _fact(evidence: Evidence, gpu: Gpu, key: str) -> float | None:
    """Return a fact about a GPU as a number, None if unknown."""
    text = evidence.get(find_facts, gpu.track).get(key, "")
    return float(text) if text.replace(".", "", 1).isdecimal() else None
