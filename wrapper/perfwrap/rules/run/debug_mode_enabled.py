"""A debugging option of PyTorch or of the driver is on during training.

What it finds
    torch.autograd's anomaly detection, a profiler that the program started and did not stop, CUDA_LAUNCH_BLOCKING,
    torch.cuda.set_sync_debug_mode(), TORCH_DISTRIBUTED_DEBUG=DETAIL and verbose NCCL_DEBUG, if they were on for at
    least half of the training loop.

Why it costs
    Anomaly detection takes a stack trace for each operation and checks each gradient for NaN. A profiler records each
    operation. CUDA_LAUNCH_BLOCKING makes the host wait for each kernel. The others check or print at each collective.

How the gain is estimated
    Estimated, as a range of the parts of the loop that the option slows down. Anomaly detection took 19 to 89 % of
    forward and backward (most with small operations), torch's profiler 15 to 80 %, measured on a CPU. For the others
    the cost is unknown, and none is claimed.

How to fix
    Remove the line or the variable, or enable it only for the steps that you debug.

When it is wrong
    When the purpose of the run is debugging.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import parse_line
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.loop.settings_in_force import share_switched_on
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "options")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_on_share: float = 0.5
    """Share of the loop during which an option must be on; a profiler of some steps is no problem."""


ANYWHERE, GPU, MANY = "anywhere", "gpu", "many processes"


class Aid(Struct, frozen=True):
    """A debugging option: its fact, the values that enable it (None: any but off), and what it slows down."""

    fact: str
    name: str
    values: tuple[str, ...] | None
    where: str
    parts: tuple[str, ...] = ()
    least: float = 0.0
    most: float = 0.0


AIDS = (
    Aid(
        "anomaly_detection",
        "Anomaly detection",
        None,
        ANYWHERE,
        ("forward", "backward"),
        0.19,
        0.89,
    ),
    Aid("user_profiler", "The program's own profiler", None, ANYWHERE, COMPUTE_PARTS, 0.15, 0.80),
    Aid("env/CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", ("1",), GPU),
    Aid("sync_debug_mode", "torch.cuda.set_sync_debug_mode()", None, GPU),
    Aid("env/TORCH_DISTRIBUTED_DEBUG", "TORCH_DISTRIBUTED_DEBUG=DETAIL", ("DETAIL",), MANY),
    Aid("env/NCCL_DEBUG", "NCCL_DEBUG", ("INFO", "TRACE"), MANY),
)
"""Shares: measured with torch 2.13 on a CPU, MLP to transformer, the fastest of 20 steps each; see above."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for each debugging option."""
    found = [_finding(evidence, trainer, aid) for aid in AIDS if _is_on(evidence, trainer, aid, limits)]
    return found or Clear("No debugging option that slows down training was on.")


def _is_on(evidence: Evidence, trainer: Trainer, aid: Aid, limits: Limits) -> bool:
    """Return whether an option was on where it matters, for most of the loop."""
    facts = evidence.get(find_facts, trainer.process)
    if aid.where == GPU and not trains_on_gpu(evidence, trainer):
        return False
    if aid.where == MANY and facts.get("world_size", "1") in ("1", "None"):
        return False
    if aid.values is not None and facts.get(aid.fact, "").upper() not in aid.values:
        return False
    return evidence.get(share_switched_on, trainer, aid.fact) >= limits.min_on_share


def _finding(evidence: Evidence, trainer: Trainer, aid: Aid) -> Finding:
    """Return the finding about one option."""
    account, step_ns = evidence.get(find_account, trainer), mean_step_ns(evidence, trainer)
    slowed = sum(account.shares[part] for part in aid.parts)
    share = aid.most * slowed
    line = parse_line(evidence.get(find_facts, trainer.process).get(f"{aid.fact}/line"))
    on = f"{aid.name} is on" + (f" ({place(line, '')})" if line else "")
    cost = (
        f", which may cost up to {SHARE} of the training loop." if slowed else ", which slows down training."
    )
    words = [f"It was on for {units.share(evidence.get(share_switched_on, trainer, aid.fact))} of the loop."]
    if slowed:
        parts = " and ".join((", ".join(aid.parts[:-1]), aid.parts[-1]))
        words.append(f"It slows down {parts}, which take {units.share(slowed)} of the loop.")
    return Finding(
        title=on + cost,
        share=share,
        evidence=tuple(words),
        options=(
            Option(
                f"Remove {place(line, 'the setting')}, or enable it only for the steps that you debug.",
                saving(step_ns, aid.least * slowed * step_ns, share * step_ns),
                experiment="no-debug",
            ),
        ),
        verdict="python-bound" if slowed else None,
        location=locate(line),
        confidence="inferred",
        claims=pl.col("part").is_in(list(aid.parts)) if slowed else None,
        health=not slowed,
    )
