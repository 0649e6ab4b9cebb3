"""Why there must be no dataflow window: where the mode would change the program, or not see its operations."""

from __future__ import annotations

import sys
import threading
from _thread import get_ident

from perfwrap_recorder import guard, static_access
from perfwrap_recorder.dataflow import handler_keys, operation_mode
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.program import seen_models

SHARDED = "FullyShardedDataParallel", "FSDPModule"
FLEX_ATTENTION = "torch.nn.attention.flex_attention"
"""A module with a higher-order operator that programs call without compiling."""


CONSTRUCTED = "the program has a class of tensors that PyTorch's constructor cannot make while it is watched"

has_compiled = []
"""Not empty once the program has asked for a compiled function; known only where Dynamo does not ignore the mode."""


def find_lack(torch):
    """Return what this version of PyTorch lacks, "" if nothing."""
    base = getattr(getattr(torch.utils, "_python_dispatch", None), "TorchDispatchMode", None)
    needed = (
        "_current_graph_task_id",
        "_len_torch_dispatch_stack",
        "_get_dispatch_stack_at",
        "_push_on_torch_dispatch_stack",
        "_pop_torch_dispatch_stack",
        "_DisableTorchDispatch",
        *handler_keys.NEEDED,
    )
    if base is None or not all(hasattr(torch._C, name) for name in needed):
        return "this version of PyTorch lacks what it needs"
    if not hasattr(torch._C._autograd, "_get_sequence_nr"):
        return "this version of PyTorch lacks what it needs"
    return ""


def find_reason(torch, mode=None):
    """Return why there must be no window now, "" if there may; ``mode`` is that of the open window."""
    if operation_mode.FAILED in guard.failed:
        return "perfwrap's own code failed: %s" % guard.failed[operation_mode.FAILED]
    if torch._C._len_torch_dispatch_stack() != (mode is not None):
        return "another dispatch mode is active"
    if get_ident() != threading.main_thread().ident:
        return "the thread that trains is not the main thread"
    if torch.autograd._profiler_enabled():
        return "a profiler is active"
    if torch.is_inference_mode_enabled():
        return "the step ends in inference mode"
    if _uses_compiler():
        return "torch.compile is in use, whose compiled regions show no operations"
    if not is_ignored_by_compiler(torch) and may_compile():
        return "torch.compile may be used, and its compiler does not ignore dispatch modes in this version of PyTorch"
    if devices.current is not None and devices.current.is_chosen:
        return "the device is not one that PyTorch itself is built for"
    if devices.is_started() and devices.current.is_capturing():
        return "a CUDA graph is being captured"
    if getattr(torch._C, "_functorch", None) and torch._C._functorch.peek_interpreter_stack() is not None:
        return "the training step runs inside a transform of torch.func"
    if any(kind.__name__ in SHARDED for kind in _kinds_of_modules(torch)):
        return "the model is sharded by FSDP"
    if any(is_constructed(torch, kind) for kind in _kinds_of_tensors(torch.Tensor)):
        return CONSTRUCTED
    return ""


def _uses_compiler():
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and bool(
        getattr(frames, "FRAME_COUNTER", 0) or getattr(frames, "initial_global_state", None)
    )


def is_ignored_by_compiler(torch):
    """Return whether Dynamo ignores the mode, and higher-order operators accept it."""
    base = torch.utils._python_dispatch.TorchDispatchMode
    names = "is_infra_mode", "ignore_compile_internals", "supports_higher_order_operators"
    return all(hasattr(base, name) for name in names)


def may_compile():
    """Return whether the program has asked for a compiled function, or imported a higher-order operator."""
    if FLEX_ATTENTION in sys.modules:
        return True
    backends = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", None) or {}
    return bool(has_compiled) or any(each is not None for each in backends.values())


def _kinds_of_modules(torch):
    """Return the classes that are derived from FSDP's, as far as the program has imported it."""
    found = []
    for name in (
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        "torch.distributed.fsdp._fully_shard._fully_shard",
    ):
        module = sys.modules.get(name)
        for sharded in SHARDED:
            kind = getattr(module, sharded, None)
            if kind is not None and _is_used(kind):
                found.append(kind)
    return found


def _is_used(kind):
    """Return whether a module of FSDP's class was made, or a class was derived from it, as ``fully_shard`` does."""
    if type.__subclasses__(kind):
        return True
    return any(static_access.is_kind_of(type(module), kind) for _, module in seen_models.alive())


def _kinds_of_tensors(base):
    """Return the classes that are derived from a class of tensors."""
    found = type.__subclasses__(base)
    return [*found, *(kind for each in found for kind in _kinds_of_tensors(each))]


def is_constructed(torch, kind):
    """Return whether tensors of a class come from PyTorch's constructor, ``Kind(tensor)``.

    The constructor gives what ``detach`` returned to an object of that class, and raises an error if it is already
    another object's: that which a mode returned.
    """
    is_of_torch = static_access.module_of(kind).startswith("torch.")
    if is_of_torch or static_access.is_kind_of(kind, torch.nn.Parameter):
        return False
    for each in static_access.mro_of(kind):
        new = static_access.members_of(each).get("__new__")
        code = getattr(getattr(new, "__func__", new), "__code__", None)
        if code is not None and "__new__" not in code.co_names:
            return False  # it calls ``_make_subclass``, ``_make_wrapper_subclass`` or ``as_subclass``
    # A class that others inherit from, such as torchvision's TVTensor, is not made itself.
    return not type.__subclasses__(kind)
