"""Models that are not modules: functions of tensors, as in Pyro or a network written by hand.

No forward pass is recorded of them, and none of modules whose ``forward`` is called directly. But a backward pass has a
forward pass of about the same length, so that where none was recorded, tensor work of that length in the program's own
code is the model's. Derivatives that the program computes in its own code (``torch.autograd.grad``) are the model's
work, too, and so are long operations on tensors.
"""

from __future__ import annotations

from perfwrap.measures.account.account import find_account
from perfwrap.measures.dataflow.gap_lines import long_work_share
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.gap_calls import find_tensor_calls
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.loop.source_calls import tensor_calls
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, sampled_gap
from perfwrap.measures.trainers import Trainer

MIN_BACKWARD_SHARE = 0.2
"""Share of the loop from which a backward pass tells the length of the forward pass."""
MAX_FORWARD_RATIO = 0.1
"""Recorded forward pass over backward pass, above which the model consists of modules."""
MAX_MODEL_RATIO = 1.5
"""Forward pass over backward pass, at most: more time in the program's own code is not only the model's."""
MIN_TORCH_SHARE = 0.5
"""Share of a section's samples in torch, or at lines that call its functions, from which it is tensor work."""
MIN_LONG_SHARE = 0.5
"""Share of a section's time in long operations from which their work takes the time, and not their calls."""
DERIVATIVES = frozenset(("torch.autograd.grad", "autograd.grad"))


def find_model_gaps(evidence: Evidence, trainer: Trainer) -> tuple[PythonGap, ...]:
    """Return the sections of the program's own code that compute and are not Python's overhead."""
    computing = tuple(
        gap
        for gap in evidence.get(find_python_gaps, trainer)
        if _is_derivative(evidence, trainer, gap) or long_work_share(evidence, trainer, gap) >= MIN_LONG_SHARE
    )
    return (*computing, *_of_functions(evidence, trainer, computing))


def _of_functions(
    evidence: Evidence, trainer: Trainer, known: tuple[PythonGap, ...]
) -> tuple[PythonGap, ...]:
    """Return the other sections in which a model computes that is not a module."""
    parts = evidence.get(find_account, trainer).ns
    whole, backward = sum(parts.values()), parts["backward"]
    if backward < MIN_BACKWARD_SHARE * whole or parts["forward"] > MAX_FORWARD_RATIO * backward:
        return ()
    found, left = [], MAX_MODEL_RATIO * backward - parts["forward"]
    for gap in evidence.get(find_python_gaps, trainer):
        if gap not in known and gap.total_ns <= left and _is_tensor_work(evidence, trainer, gap):
            found.append(gap)
            left -= gap.total_ns
    return tuple(found)


def _is_derivative(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> bool:
    """Return whether a section is mostly in torch's autograd: by its samples or, without any, by its lines."""
    sampled = sampled_gap(evidence, trainer, gap, False)
    if sampled is None or sampled.source != OUTSIDE:
        return bool(DERIVATIVES.intersection(find_tensor_calls(evidence, trainer, gap)))
    derived = sum(
        hot.library.count
        for hot in sampled.functions
        if hot.library is not None and hot.library.main is not None and hot.library.main.derives
    )
    return derived >= MIN_TORCH_SHARE * sampled.count


def _is_tensor_work(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> bool:
    """Return whether most of a section's samples are in torch or, without samples, its lines call tensor operations."""
    sampled = sampled_gap(evidence, trainer, gap, False)
    if sampled is None or sampled.source != OUTSIDE:
        return bool(find_tensor_calls(evidence, trainer, gap))
    in_torch = sum(hot.count for hot in sampled.functions if _calls_torch(evidence, hot))
    return in_torch >= MIN_TORCH_SHARE * sampled.count


def _calls_torch(evidence: Evidence, hot: HotFunction) -> bool:
    """Return whether a function of the program spends its time in torch: by its samples or, without any, its source."""
    if hot.library is not None:
        return hot.library.main is not None and hot.library.main.package == "torch"
    return bool(tensor_calls(evidence.timeline.run, hot.line.file, hot.line.line, hot.line.line))
