"""The optimizer makes a torch call for each tensor and each operation of its formula.

What it finds
    An optimizer that loops over its tensors in Python, if optimizer steps take at least 2 % of the loop: on a GPU one
    of torch's with foreach=False, on a CPU one with many small tensors, or Adam, AdamW or Adagrad with at least four
    small tensors or with large ones, which torch updates in this way unless fused=True is given. Optimizers of the
    program or a library count as looping on a CPU if they take at least 10 µs for each of many small tensors. From 10 %
    of the loop on, also those without a fused form: torch's own with large tensors, and others that take at least 4 ns
    per element.

Why it costs
    The loop makes about ten torch calls per tensor, however small it is: 50 to 120 µs per tensor with Adam or AdamW. In
    a small model, or with hundreds of small tensors, these calls dominate, not the arithmetic. With large tensors, each
    call reads and writes their memory anew.

How the gain is estimated
    The time of the step is measured. On a CPU fused=True saved 60 to 90 % of it for 16 to 2 M elements per tensor (Adam
    and AdamW of torch 2.13), 50 to 70 % for Adagrad, 30 to 75 % for SGD with small tensors; with 4 to 48 tensors of 16
    to 32,768 elements on average 51 to 82 % for Adam and AdamW and 43 to 75 % for Adagrad; with 60,000 to 10 M elements
    and one or two threads 58 to 82 % for Adam and 13 to 76 % for Adagrad. On a GPU the gain is estimated: from
    half of the host's time in the step to nearly all of it. For a class without a fused form in torch, the lower bound
    is no gain. For a copy of Adam, AdamW or Adagrad the fused one is assumed to take 3 to 7 µs per small tensor and 1.2
    to 2.5 ns for each of its elements (measured: 3 to 12 µs in all), or 2 to 6 ns per element of large ones (measured:
    2 ns). With torch.compile the step of RMSprop, NAdam, RAdam, Adadelta, Adamax, ASGD and Rprop took 11 to 70 % of its
    time (4 M and 2 M elements, one thread, beside another program); nothing is promised, since it also has to compile,
    and other classes were not measured.

How to fix
    Pass fused=True to the optimizer (on a CPU: torch 2.4 or later), or on a GPU remove foreach=False. Use torch's
    optimizer instead of a copy of it; write optimizers that torch does not have with its foreach functions.

When it is wrong
    When foreach=False was chosen to save GPU memory: foreach temporarily needs as much memory as the parameters;
    fused=True does not. If the GPU is the limit, it hides the host's time in the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts, torch_version
from perfwrap.measures.loop.optimizers import FIRST_FUSED_ON_CPU, OptimizerUse, find_optimizers
from perfwrap.measures.loop.program_calls import find_only_call
from perfwrap.measures.loop.stacks import Sampled, sampled_optimizer
from perfwrap.measures.models import find_models
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.levers import find_levers
from perfwrap.rules.loop._optimizer_groups import TORCH_OPTIM, alike, places_of, share_of, together
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place
from perfwrap.rules.run import double_precision
from perfwrap.rules.stack_samples import main_function, quote

NEEDS = ("steady_steps", "options")

FUSED_ON_CPU = {"Adam": (0.60, 0.85), "AdamW": (0.60, 0.85), "Adagrad": (0.50, 0.70), "SGD": (0.30, 0.75)}
"""Optimizers with a fused CPU kernel (torch 2.4's release notes), and the share of the step that it saves (measured,
see above). SGD without momentum gains less."""

FUSED_IF_FEW = {"Adam": (0.50, 0.82), "AdamW": (0.50, 0.82), "Adagrad": (0.40, 0.75)}
"""The same for few small tensors. SGD with few gains 0 to 74 %, depending on its momentum, which is not recorded."""

FUSED_IF_LARGE = {"Adam": (0.55, 0.82), "AdamW": (0.55, 0.82), "Adagrad": (0.15, 0.75)}
"""The same for large tensors: SGD without momentum gains nothing there, and its momentum is not recorded."""

UNFUSED = ("RMSprop", "NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "Rprop")
"""Optimizers of torch without a fused form, that make many passes."""

COMPILED = (0.0, 0.85)
"""The share of the step that torch.compile saves (measured, see above)."""

FUSED_ELEMENT_NS = (2.0, 6.0)
"""The time that torch's fused Adam takes per element, at best and at worst."""

FUSED_SMALL_NS = ((3_000.0, 1.2), (7_000.0, 2.5))
"""The time that it takes per small tensor, and in addition per element, at best and at worst (measured with 99 to 400
tensors of 16 to 16,384 elements, 1 and 2 threads)."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_tensors: int = 50
    """Tensors from which a loop over them counts: with fewer, its calls take less than 1 ms."""
    min_fused_tensors: int = 4
    """The same for torch's Adam, AdamW and Adagrad, whose fused form gains half of the step from there."""
    min_few_share: float = 0.05
    """Share of the loop from which few small tensors are reported: below it, the gain may be under 3 %."""
    max_small_elements: int = 16_384
    """Mean elements per tensor up to which calls cost more than arithmetic on a CPU: measured 9 to 110 µs per tensor of
    up to 4,096 elements with Adam or SGD, 125 to 560 µs for 65,536. There is no time limit, because a busy machine
    would shift it."""
    min_loop_ns: int = 10_000
    """Time per small tensor from which an optimizer that is not torch's counts as looping in Python: a dozen torch
    calls take 20 to 50 µs, the same with foreach functions less than 10 µs."""
    min_unfused_share: float = 0.10
    """Share of the loop from which an optimizer without a fused form counts."""
    min_element_ns: float = 4.0
    """Time per element from which an optimizer that is not torch's makes many passes; fused Adam takes 2 ns."""
    max_rows_share: float = 0.10
    """Share of the rows of embeddings with a gradient up to which ``dense_embedding`` has the better advice."""
    min_verdict_share: float = 0.20
    """Share of the loop from which the optimizer on a CPU is what holds the loop back; below, the model's work is."""
    min_launches_saved: float = 0.5
    max_launches_saved: float = 0.95
    """Share of the host's time in the step that is saved on a GPU, where a few launches replace hundreds."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check how each optimizer updates its tensors."""
    on_gpu = trains_on_gpu(evidence, trainer)
    if isinstance(double_precision.check(evidence, trainer, double_precision.Limits()), list):
        return Clear("The parameters are float64, which costs more than how the optimizer updates them.")
    found = evidence.get(find_optimizers, trainer)
    version = torch_version(evidence.get(find_facts, trainer.process))
    small = _elements(evidence, trainer) <= limits.max_small_elements * sum(use.tensors or 0 for use in found)
    large = {} if on_gpu else {use.name: _saved_if_large(use, version, limits) for use in found}
    slow = [
        use
        for use in found
        if (
            _loops_on_gpu(use)
            if on_gpu
            else (small and _loops_on_cpu(use, version, limits)) or large[use.name] is not None
        )
    ]
    groups = [group for group in alike(slow, large) if share_of(group) >= _least_share(group, large, limits)]
    if not groups:
        total = units.share(sum(use.share for use in found))
        return Clear(f"Optimizer steps take {total} of the loop; none of them is known to be slow.")
    step_ns = mean_step_ns(evidence, trainer)
    can_compile = bool(evidence.get(find_levers, trainer).compiling)
    sampled = evidence.get(sampled_optimizer, trainer)
    return [
        _finding(
            uses,
            evidence.get(
                find_only_call,
                uses[0].kind.rpartition(".")[2],
                uses[0].where.file if uses[0].where else None,
            ),
            on_gpu,
            None if on_gpu else large[uses[0].name],
            can_compile,
            step_ns,
            None if uses[0].kind.startswith(TORCH_OPTIM) or len(found) > 1 else sampled,
            limits,
        )
        for uses in groups
    ]


def _least_share(
    uses: Sequence[OptimizerUse], large: Mapping[str, tuple[float, float] | None], limits: Limits
) -> float:
    """Return the share of the loop from which optimizers are reported."""
    tensors = sum(use.tensors or 0 for use in uses)
    few = large.get(uses[0].name, ()) is None and tensors < limits.min_tensors
    return limits.min_few_share if few else limits.min_reported_share


def _loops_on_gpu(use: OptimizerUse) -> bool:
    """Return whether the program itself disabled foreach."""
    return use.kind.startswith(TORCH_OPTIM) and use.foreach is False and not use.fused


def _loops_on_cpu(use: OptimizerUse, version: tuple[int, ...], limits: Limits) -> bool:
    """Return whether a step loops over many small tensors and could avoid it."""
    if use.fused or use.tensors is None:
        return False
    if use.kind.startswith(TORCH_OPTIM):
        few = use.kind.rpartition(".")[2] in FUSED_IF_FEW
        least = limits.min_fused_tensors if few else limits.min_tensors
        return _can_be_fused(use) and use.tensors >= least and version >= FIRST_FUSED_ON_CPU
    many = use.tensors >= limits.min_tensors
    return many and bool(use.kind) and use.ns_per_step >= limits.min_loop_ns * use.tensors


def _saved_if_large(
    use: OptimizerUse, version: tuple[int, ...], limits: Limits
) -> tuple[float, float] | None:
    """Return the share of a CPU's step that is saved, if it goes over large tensors several times; otherwise None.

    If most rows of large embeddings have no gradient, another rule has better advice.
    """
    if use.fused or not use.elements or not use.tensors or not use.kind:
        return None
    is_table = use.embeddings is not None and use.embeddings.touched <= limits.max_rows_share
    if is_table or use.elements <= limits.max_small_elements * use.tensors:
        return None
    name = use.kind.rpartition(".")[2]
    if use.kind.startswith(TORCH_OPTIM):
        if name in FUSED_IF_LARGE:
            return FUSED_IF_LARGE[name] if version >= FIRST_FUSED_ON_CPU else None
        return COMPILED if use.share >= limits.min_unfused_share and name in UNFUSED else None
    each_ns = use.ns_per_step / use.elements
    if use.share < limits.min_unfused_share or each_ns < limits.min_element_ns:
        return None
    if name in FUSED_IF_LARGE and version >= FIRST_FUSED_ON_CPU:
        best_ns, worst_ns = FUSED_ELEMENT_NS
        return max(0.0, 1.0 - worst_ns / each_ns), 1.0 - best_ns / each_ns
    return COMPILED


def _saved_if_small(use: OptimizerUse, limits: Limits) -> tuple[float, float]:
    """Return the share of a CPU's step that is saved with small tensors."""
    name = use.kind.rpartition(".")[2]
    least, most = FUSED_ON_CPU.get(name, FUSED_ON_CPU["Adam"])
    if use.tensors is not None and use.tensors < limits.min_tensors:
        least, most = FUSED_IF_FEW.get(name, (least, most))
    if use.kind.startswith(TORCH_OPTIM) or name not in FUSED_IF_LARGE or not use.tensors or not use.elements:
        return least, most
    # A copy makes more or fewer passes than torch's own.
    best_ns, worst_ns = (each * use.tensors + element * use.elements for each, element in FUSED_SMALL_NS)
    return max(0.0, 1.0 - worst_ns / use.ns_per_step), max(0.0, min(most, 1.0 - best_ns / use.ns_per_step))


def _can_be_fused(use: OptimizerUse) -> bool:
    """Return whether torch has a fused CPU form of it, or of one with the same name."""
    return use.kind.rpartition(".")[2] in FUSED_ON_CPU


def _elements(evidence: Evidence, trainer: Trainer) -> float:
    """Return the total number of elements of the trainer's models; infinity if unknown."""
    sizes = [model.parameters for model in evidence.get(find_models, trainer)]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else inf


def _finding(
    uses: Sequence[OptimizerUse],
    made_at: Line | None,
    on_gpu: bool,
    large: tuple[float, float] | None,
    can_compile: bool,
    step_ns: float,
    sampled: Sampled | None,
    limits: Limits,
) -> Finding:
    """Return the finding about one optimizer, or several that have the same fix.

    ``large`` is the share of its step that is saved with large tensors, ``sampled`` are the samples of its steps, if
    the program can change them.
    """
    use = together(uses)
    kind, is_large, hottest = use.kind.rpartition(".")[2], large is not None, main_function(sampled)
    least, most = (
        (limits.min_launches_saved, limits.max_launches_saved)
        if on_gpu
        else large or _saved_if_small(use, limits)
    )
    best, worst = saving(step_ns, least * use.share * step_ns, most * use.share * step_ns)
    each = (
        f", {units.duration(use.ns_per_step / use.tensors)} for each of "
        f"{units.counted(use.tensors, 'tensor')}"
        if use.tensors
        else ""
    )
    is_torchs = use.kind.startswith(TORCH_OPTIM)
    made = (
        f"it is not from torch ({use.kind.removeprefix('__main__.')})"
        if not is_torchs
        else f"it was created with {'foreach=False' if use.foreach is False else 'neither foreach nor fused'}"
        if large != COMPILED
        else "torch has no fused form of it"
    )
    if is_large and use.elements:
        each = f" for {units.count(use.elements)} elements"
    how = "goes over all parameters several times" if is_large else "updates tensors one by one"
    return Finding(
        title=f"{SHARE} of the training loop is {kind}.step() at {places_of(uses)}, which {how}.",
        share=use.share,
        evidence=(
            f"{units.duration(use.ns_per_step)} per step{each}; {made}.",
            *(quote(sampled, "of its steps") if hottest else ()),
        ),
        options=_options_in_passes(kind, can_compile, (best, worst))
        if large == COMPILED
        else _options(
            use, made_at, f"each {kind}" if len(uses) > 1 else kind, is_torchs, on_gpu, (best, worst)
        ),
        verdict="launch-bound"
        if on_gpu
        else None
        if use.share < limits.min_verdict_share
        else "compute-bound"
        if is_large
        else "python-bound",
        location=locate(hottest.line if hottest else use.where),
        confidence="inferred",
        claims=(pl.col("operation") == "optimizer")
        & pl.col("name").is_in([each.name for each in uses])
        & (pl.col("part") == "optimizer"),
    )


def _options_in_passes(kind: str, can_compile: bool, saving: tuple[float, float]) -> tuple[Option, ...]:
    """Return the ways to go over large tensors less often, where torch has no fused form."""
    fewer = Option(
        f"Take fewer steps with {kind}: a larger batch, or gradients of several batches.",
        (saving[0], 1.0),
        details="This changes the training.",
    )
    if not can_compile:
        return (fewer,)
    compiled = Option(
        "Compile the step: step = torch.compile(optimizer.step).",
        (saving[0], 1.0),
        details="It then goes over each tensor about once. With a scheduler, lr must be a tensor: each new number "
        "compiles the step again.",
    )
    return (compiled, fewer)


def _options(
    use: OptimizerUse,
    made_at: Line | None,
    kind: str,
    is_torchs: bool,
    on_gpu: bool,
    saving: tuple[float, float],
) -> tuple[Option, ...]:
    """Return the ways to update all tensors at once; ``made_at`` is where the optimizer is created, if known."""
    created = f"at {place(made_at, '')}" if made_at else "where it is created"
    certain = saving if not on_gpu and _can_be_fused(use) else (saving[0], 1.0)
    basis = (
        f"{units.counted(use.tensors, 'tensor')}, {units.duration(use.ns_per_step)} per step"
        if use.tensors
        else ""
    )
    if is_torchs:
        edit = f"Pass fused=True to {kind} {created}."
        fused = Option(
            edit, certain, basis, "fused-optimizer", "One call then updates all tensors in one pass."
        )
        if not on_gpu or use.foreach is not False:
            return (fused,)
        # On a GPU torch takes foreach by default: the program switched it off.
        return (fused, Option(f"Remove foreach=False of {kind}.", (saving[0], 1.0)))
    if _can_be_fused(use):
        return (
            Option(
                f"Use torch.optim.{kind} with fused=True {created}, if it does the same.",
                certain,
                basis,
                details="One call then updates all tensors.",
            ),
        )
    return (
        Option(
            f"Write {kind}.step() with torch's foreach functions (such as torch._foreach_mul_).",
            certain,
            basis,
            details="They update all tensors at once.",
        ),
        Option("Use an optimizer of torch with fused=True.", certain),
    )
