"""Records a short window with torch's profiler if requested, see ``gpu/profiler_window.py``.

Replaces ``_prepare_profiler`` and ``_enable_profiler`` of ``torch.autograd.profiler`` and of ``torch.autograd``, and
``_enable_profiler_legacy`` of the latter, only to end the window before the program's own profiler begins. The user
could notice one more frame in a traceback through these and, once a window was recorded, a thread of Kineto in the
process. What else the program's profiling says of itself comes from ``program_profiler``.

Not seen: uses of the functions of ``torch._C._autograd`` without torch's own modules.
"""

from __future__ import annotations

import atexit
import os
import sys

from perfwrap_recorder import guard, roles
from perfwrap_recorder.gpu import gpu_events, profiler_window, torch_profiler
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.journal import journal
from perfwrap_recorder.journal_format import BACKWARD, OPTIMIZER

REPLACED = ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy")

WAITING = (profiler_window.AUTO, profiler_window.STEADY, profiler_window.WORST, profiler_window.KERNELS)

NEED_GPU = {
    profiler_window.AUTO: profiler_window.NOT_NEEDED,
    profiler_window.KERNELS: profiler_window.NO_KERNELS,
}
"""Windows that need a GPU, and why there is none without."""

WARNS_OF_FORKS = (3, 12)
"""From this version on Python warns of a fork if there is more than one thread of any kind."""

MAX_EVALUATION_STEPS = 1000
"""After this many batches of a program that has an optimizer, the window no longer waits for the first step of it."""

OTHERS = (
    "NSYS_",
    "NV_NSIGHT",
    "NV_COMPUTE_PROFILER",
    "KINETO_",
    "CUPTI_",
    "ROCP",
    "ROCTX",
    "HSA_TOOLS_LIB",
    "VTUNE",
)
"""Prefixes of variables of tools that profile a GPU or use torch's profiler themselves."""
INJECTED = ("CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH")


def install(torch):
    """Prepare the window."""
    asked = getattr(journal.settings, "window", "")
    if not asked or not hasattr(torch.autograd, "kineto_available"):
        return
    if wrapping.is_wrapper(torch.autograd.profiler._prepare_profiler):
        return
    give_way = guard.protect("window", profiler_window.give_way)
    for owner in (torch.autograd.profiler, torch.autograd):
        for name in REPLACED:
            wrapping.patch(torch, owner, name, _make(give_way))
    reason = torch_profiler.find(torch)
    details = tuple(filter(None, journal.settings.window_detail.split(",")))
    all_ranks = journal.settings.window_ranks == "all"
    profiler_window.begin(asked, details, all_ranks, lambda: reason or _find_reason(torch, all_ranks, asked))
    journal.after_fork.add(guard.protect("window", profiler_window.forget))
    os.register_at_fork(before=guard.protect("window", profiler_window.end_before_fork))
    atexit.register(guard.protect("window", profiler_window.end_with_program))


def _make(give_way):
    def make(original, _):
        def wrapper(*arguments, **options):
            give_way()
            return original(*arguments, **options)

        return wrapper

    return make


def _find_reason(torch, all_ranks, asked):
    """Return why there must be no window now: "" if it may begin, None if it must wait."""
    if asked in NEED_GPU and not torch_profiler.has_started_gpu():
        return NEED_GPU[asked]
    tool = _find_other_tool(os.environ)
    if tool:
        return "another tool watches this process: %s is set" % tool
    rank = roles.find_ranks(os.environ)[0]
    distributed = torch.distributed
    if rank is None and distributed.is_available() and distributed.is_initialized():
        rank = distributed.get_rank()
    if not all_ranks and str(rank or 0) != "0":
        return "rank 0 takes it"
    if asked in WAITING and asked != profiler_window.WORST and gpu_events.has_captured:
        return "CUDA graphs are in use; `--window 3@100` takes it all the same"
    if sys.version_info >= WARNS_OF_FORKS and len(os.listdir("/proc/self/task")) == 1:
        return "the program has one thread, and would have two: Python warns of forks then"
    must_wait = gpu_events.captures or (asked in WAITING and _evaluates_first(torch))
    return None if must_wait else torch_profiler.find_remote_calls()


def _evaluates_first(torch):
    """Return whether the steps so far are forward passes of a program that will train, such as a first evaluation."""
    trains = journal.step_kind() in (OPTIMIZER, BACKWARD)
    return (
        not trains and journal.count_steps() < MAX_EVALUATION_STEPS and _has_optimizer(torch.optim.Optimizer)
    )


def _has_optimizer(kind):
    """Return whether there was an optimizer of that class or of one below it: the first one marks its ``step``."""
    if getattr(vars(kind).get("step"), "hooked", False) is True:
        return True
    return any(_has_optimizer(below) for below in type.__subclasses__(kind))


def _find_other_tool(environment):
    """Return the variable that shows another tool that profiles the GPU or uses this profiler."""
    for name in environment:
        if name.startswith(OTHERS) or (name in INJECTED and environment[name] not in ("", "none")):
            return name
    return ""
