"""The GPU runs at lowered clocks because of heat, power or its hardware.

What it finds
    Reasons for which the driver lowered the clocks (NVML), each that held for 5 % of the training loop or more: heat,
    hardware slowdown, power brake, power limit; and temperatures above 83 degrees Celsius, or above the card's own
    limit where it tells a higher one.

Why it costs
    All work on the GPU takes longer by what the clocks lose.

How the saving is worked out
    Measured where the clocks were sampled: how far below their highest they were while a reason other than the power
    limit held. At the power limit nothing is claimed: a GPU that computes hard is there, and is meant to be.

How to fix
    Heat: air, fans, dust, the room, a lower power limit that keeps clocks even. Hardware slowdown and power brake: the
    power supply and its cables. A power limit below the usual one: nvidia-smi -pl, by who may.

When it is wrong
    The clocks' highest value is that of a cool card under little load; a part of what is missing is ordinary.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu import REASON, Gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

HOT_CELSIUS = 83.0
"""The temperature that a GTX 1080 lowers its clocks to keep (ComputerBase's review; other cards have others, a GTX 980
80 by TechPowerUp's); used where the card tells no higher limit of its own."""

POWER_LIMIT = "power_cap"
"""The one reason that is ordinary for a GPU that computes hard."""

NAMES = {
    "heat": "heat (the driver)",
    "hardware_heat": "heat (the hardware)",
    "hardware_slowdown": "a slowdown by the hardware",
    "power_brake": "a power brake from outside",
    "board_limit": "the board's limit",
    "reliability": "reliability",
    POWER_LIMIT: "the power limit",
}
"""What NVML's reasons are called in a sentence."""

LOWERED = 0.9
"""Of its default; a power limit below that was lowered by somebody."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for lowered clocks and heat."""
    gpus = evidence.own_gpus(trainer)
    if not gpus:
        return NotChecked("None of the GPUs that were watched is known to belong to this trainer.")
    known = [
        gpu for gpu in gpus if gpu.throttled_share is not None or _hottest(evidence, trainer, gpu) is not None
    ]
    if not known:
        return NotChecked("This GPU does not tell its temperature, nor why its clocks are lowered.")
    found = [finding for gpu in known if (finding := _judge(evidence, trainer, gpu)) is not None]
    return found or Clear(
        f"Clocks were lowered in {units.share(known[0].throttled_share)} of the samples, only by the power limit."
        if known[0].throttle_reasons
        else "No reason for lowered clocks held for long."
    )


def _judge(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> Finding | None:
    """Return what is wrong with one GPU, if anything is."""
    serious = [reason for reason in gpu.throttle_reasons if reason != POWER_LIMIT]
    hottest = _hottest(evidence, trainer, gpu)
    words = _words(evidence, trainer, gpu, hottest)
    if serious:
        lost = _lost(evidence, trainer, gpu, serious)
        named = ", ".join(NAMES.get(reason, reason) for reason in serious)
        return Finding(
            title=f"{gpu.name} runs at lowered clocks because of {named}.",
            share=lost,
            saving=(1.0 - lost, 1.0 - lost / 2),
            evidence=words,
            advice="Look after its cooling and its power supply; where that cannot be helped, a lower power limit "
            "keeps the clocks even.",
            verdict="throttled",
            health=True,
        )
    limited = POWER_LIMIT in gpu.throttle_reasons and _was_lowered(evidence, gpu)
    if limited or (hottest is not None and hottest > _hot(evidence, gpu)):
        title = (
            f"{gpu.name} is held back by a power limit that was set below the usual one."
            if limited
            else f"{gpu.name} gets {units.number(hottest or 0.0, 3)} degrees Celsius hot."
        )
        advice = (
            "Ask who set the power limit."
            if limited
            else "Look after its cooling before its clocks are lowered."
        )
        return Finding(title, 0.0, (1.0, 1.0), words, advice, benign=True)
    return None


def _words(evidence: Evidence, trainer: Trainer, gpu: Gpu, hottest: float | None) -> tuple[str, ...]:
    """Return reasons with their shares, clocks and temperature."""
    words = []
    shares = [
        f"{NAMES.get(reason, reason)} {units.share(_mean(evidence, trainer, gpu, REASON + reason))}"
        for reason in gpu.throttle_reasons
    ]
    if shares:
        words.append(f"Of the samples: {', '.join(shares)}.")
    clock, most = _mean(evidence, trainer, gpu, "sm_clock_hertz"), _fact(evidence, gpu, "sm_clock_max_hertz")
    if clock and most:
        words.append(f"Its clock was at {units.share(clock / most)} of its highest on average.")
    if hottest is not None:
        above = f", above {units.number(HOT_CELSIUS)}" if hottest > HOT_CELSIUS else ""
        words.append(f"The highest temperature was {units.number(hottest, 3)} degrees Celsius{above}.")
    if POWER_LIMIT in gpu.throttle_reasons and _was_lowered(evidence, gpu):
        usual = _fact(evidence, gpu, "power_limit_default_watts")
        words.append(
            f"Its power limit is {units.number(gpu.power_limit_watts or 0, 3)} W, usually "
            f"{units.number(usual or 0, 3)} W."
        )
    return tuple(words)


def _lost(evidence: Evidence, trainer: Trainer, gpu: Gpu, serious: list[str]) -> float:
    """Return the share of the loop that lowered clocks cost at most; 0 where clocks were not sampled."""
    most = _fact(evidence, gpu, "sm_clock_max_hertz")
    clocks = evidence.gpu_samples(trainer, gpu, "sm_clock_hertz")
    if not most or clocks.is_empty():
        return 0.0
    held = max(_mean(evidence, trainer, gpu, REASON + reason) or 0.0 for reason in serious)
    slowest = float(clocks["value"].quantile(held / 2, "nearest") or most)
    return held * max(0.0, 1.0 - slowest / most)


def _was_lowered(evidence: Evidence, gpu: Gpu) -> bool:
    """Say whether somebody set the power limit below the usual one."""
    usual = _fact(evidence, gpu, "power_limit_default_watts")
    return bool(usual and gpu.power_limit_watts and gpu.power_limit_watts < LOWERED * usual)


def _hot(evidence: Evidence, gpu: Gpu) -> float:
    """Return the temperature that counts as hot: the card's own limit where it tells a higher one."""
    own = _fact(evidence, gpu, "temperature_max_celsius") or 0.0
    return max(HOT_CELSIUS, own)


def _hottest(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> float | None:
    values = evidence.gpu_samples(trainer, gpu, "temperature_celsius")["value"]
    return None if values.is_empty() else float(values.max())  # type: ignore[arg-type]


def _mean(evidence: Evidence, trainer: Trainer, gpu: Gpu, metric: str) -> float | None:
    values = evidence.gpu_samples(trainer, gpu, metric)["value"]
    return None if values.is_empty() else float(values.mean())  # type: ignore[arg-type]


def _fact(evidence: Evidence, gpu: Gpu, key: str) -> float | None:
    """Return a fact about a GPU as a number, None where it is not told."""
    text = evidence.facts(gpu.track).get(key, "")
    return float(text) if text.replace(".", "", 1).isdigit() else None
