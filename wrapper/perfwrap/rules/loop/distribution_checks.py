"""torch.distributions checks its arguments in each step.

What it finds
    Checks that torch.distributions makes of parameters and values, with at least 3 % of py-spy's samples of the
    training thread.

Why it costs
    Each distribution that is made, and each log_prob(), compares all parameters or values with their constraints:
    several small operations and a read of the result, on a GPU a wait for it. Beside the small networks of
    reinforcement learning, the checks can take longer than the network.

How the gain is estimated
    The share of the samples in checks. At best all of it is saved and the rest gets faster, at worst 75 %; on a GPU
    perhaps nothing, because the wait can move to the next read. Where several lines make distributions,
    without the checks of one line only its own are saved.

How to fix
    Pass validate_args=False to the distributions, or call
    torch.distributions.Distribution.set_default_validate_args(False) once. The results are the same. Keep the checks
    while you debug: they find NaN early.

When it is wrong
    When the program relies on the error of a check, for example to stop at NaN.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.account.what_if import MOST, best_without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.checked_arguments import find_distribution_checks
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, named

NEEDS = ("steady_steps", "stacks")

EVERYWHERE = "torch.distributions.Distribution.set_default_validate_args(False)"


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = 0.03
    """Share of the samples of the training thread from which checks are reported."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for samples in checks of distributions."""
    found = evidence.get(find_distribution_checks, trainer)
    if found is None or found.share < limits.min_share:
        share = units.share(0.0 if found is None else found.share)
        return Clear(f"Checks of distributions have {share} of py-spy's samples.")
    at = named("the distribution", found.where)
    least = 0.0 if trains_on_gpu(evidence, trainer) else MOST
    saving = best_without(found.share), 1.0 - least * found.share
    basis = f"{units.count(found.count)} of {units.count(found.sampled)} samples"
    everywhere = Option(
        f"Call {EVERYWHERE} at the start.",
        saving,
        basis,
        details="The results are the same. Keep the checks while you debug: they find NaN early.",
    )
    local = Option(
        f"Pass validate_args=False to {at}.",
        (saving[0], 1.0),
        basis,
    )
    where = f", mostly for {at}" if found.where else ""
    return [
        Finding(
            title=f"{SHARE} of the training loop checks the arguments of distributions{where}.",
            share=found.share,
            evidence=(
                f"{basis} of the training thread (by py-spy) are in checks of torch.distributions, which compare all "
                "parameters and values with their constraints. Findings about the code around them include this time.",
            ),
            options=(everywhere, local) if found.where else (everywhere,),
            verdict="python-bound",
            location=locate(found.where),
            confidence="inferred",
        )
    ]
