"""Says how models are spread over processes and GPUs, and which lines accumulate gradients without a reduction.

Replaces ``DistributedDataParallel._ddp_init_helper``, with which its construction ends, and ``no_sync`` of it and of
FSDP's first version. The user could notice one more frame in tracebacks. FSDP and ``DataParallel`` are described at
their first call as outermost module, which the forward probe tells of.
"""

from __future__ import annotations

import sys
from _weakref import ref
from itertools import count

from perfwrap_recorder import call_sites, guard, journal, wrapping
from perfwrap_recorder.source_lines import find_place, label

MAXIMUM_MODELS = 100

DDP = ("find_unused_parameters", "broadcast_buffers", "gradient_as_bucket_view")
FSDP = ("world_size", "limit_all_gathers", "forward_prefetch", "_use_orig_params")
FSDP_CHOICES = ("sharding_strategy", "backward_prefetch")
"""Settings that are members of enumerations."""

WRAPPERS = ("DataParallel", "FullyShardedDataParallel")

_next_number = count(1).__next__
_known = {}  # id of a model -> weak reference to it


def install(torch):
    """Watch from now on."""
    owner = torch.nn.parallel.DistributedDataParallel
    wrapping.patch(torch, owner, "_ddp_init_helper", wrapping.timed_with_options("parallel", _finish_ddp))
    wrapping.patch(torch, owner, "no_sync", _make_no_sync)
    journal.cover("probe/parallel")


def install_fsdp(module):
    """Watch FSDP too, now that the program has imported it."""
    torch, owner = sys.modules["torch"], getattr(module, "FullyShardedDataParallel", None)
    if owner is not None:
        wrapping.patch(torch, owner, "no_sync", _make_no_sync)


MODULES = {"torch.distributed.fsdp.fully_sharded_data_parallel": install_fsdp}


def describe(module):
    """Say how a model is spread whose class is one of WRAPPERS, or which ``fully_shard`` has changed."""
    key = id(module)
    known = _known.get(key)
    if (known and known() is module) or len(_known) >= MAXIMUM_MODELS:
        return
    _known[key] = ref(module)
    guard.run("parallel_facts", _describe, module)


def is_spread(kind):
    """Say whether a class of modules is one that this probe describes."""
    return kind.__module__.startswith("torch.") and (
        kind.__name__ in WRAPPERS or kind.__name__.startswith("FSDP")
    )


def _describe(module):
    kind, mine = type(module), vars(module)
    prefix = "parallel/%d/" % _next_number()
    is_sharded = kind.__name__ not in WRAPPERS
    journal.fact(prefix + "kind", "fully_shard" if is_sharded else kind.__name__)
    if kind.__name__ == "DataParallel":
        journal.fact(prefix + "devices", len(mine.get("device_ids") or ()))
    for name in FSDP:
        if type(mine.get(name)) in (bool, int):
            journal.fact(prefix + name.lstrip("_"), mine[name])
    for name in FSDP_CHOICES:
        if mine.get(name) is not None:
            journal.fact(prefix + name, getattr(mine[name], "name", ""))


def _finish_ddp(frame, start, duration, arguments, options):
    model = arguments[0]
    mine = vars(model)
    prefix = "parallel/%d/" % _next_number()
    journal.fact(prefix + "kind", "DistributedDataParallel")
    journal.fact(prefix + "line", find_place(frame))
    for name in DDP:
        journal.fact(prefix + name, bool(mine.get(name)))
    static_graph = call_sites.option(arguments, options, 4, "static_graph", None)
    if type(static_graph) is bool:
        journal.fact(prefix + "static_graph", static_graph)
    if type(mine.get("bucket_bytes_cap")) is int:
        journal.fact(prefix + "bucket_cap_mb", mine["bucket_bytes_cap"] / 2**20)
    journal.fact(prefix + "buffers", len(mine.get("modules_buffers") or ()))
    journal.fact(prefix + "world_size", mine["process_group"].size())


def _make_no_sync(original, _, is_compiling):
    def wrapper(self):
        if not is_compiling():
            guard.run("parallel_no_sync", _tell_no_sync, self, sys._getframe(1))
        return original(self)

    return wrapper


def _tell_no_sync(model, frame):
    number = label("no_sync", frame)
    call_sites.describe("no_sync", number, frame, (("kind", type(model).__name__),))
