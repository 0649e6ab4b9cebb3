"""Says how models are spread over processes and GPUs, and which lines accumulate gradients without a reduction.

Replaces ``DistributedDataParallel._ddp_init_helper``, with which its construction ends; the user could notice one
more frame in a traceback. FSDP and ``DataParallel`` are described at their first call as outermost module, which the
forward probe tells of. There a call inside of ``no_sync`` is seen too: nothing is replaced for it, since Dynamo looks
into ``no_sync``.
"""

from __future__ import annotations

from _weakref import ref
from itertools import count

from perfwrap_recorder import call_sites, guard, journal, wrapping
from perfwrap_recorder.source_lines import find_place, label

MAXIMUM_MODELS = 100

DDP = ("find_unused_parameters", "gradient_as_bucket_view")
FSDP = ("world_size", "limit_all_gathers", "forward_prefetch", "_use_orig_params")
FSDP_CHOICES = ("sharding_strategy", "backward_prefetch")
"""Settings that are members of enumerations."""

SYNCING = {
    "DistributedDataParallel": "require_backward_grad_sync",
    "FullyShardedDataParallel": "_sync_gradients",
}
"""What ``no_sync`` makes False."""

WRAPPERS = ("DataParallel", "FullyShardedDataParallel", "DistributedDataParallel")

_next_number = count(1).__next__
_known = {}  # id of a model -> weak reference to it


def install(torch):
    """Watch from now on."""
    owner = torch.nn.parallel.DistributedDataParallel
    wrapping.patch(torch, owner, "_ddp_init_helper", wrapping.timed_with_options("parallel", _finish_ddp))
    journal.cover("probe/parallel")


def describe(module, frame):
    """Say how a model is spread, at its first call, and at which line it is called inside of ``no_sync``."""
    if type(module).__name__ in SYNCING and vars(module).get(SYNCING[type(module).__name__]) is False:
        number = label("no_sync", frame)
        call_sites.describe("no_sync", number, frame, (("kind", type(module).__name__),))
    if type(module).__name__ == "DistributedDataParallel":
        return  # was said when it was made
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
    # The setting got another name, which the pickled state translates.
    journal.fact(
        prefix + "broadcast_buffers", bool(mine.get("forward_sync_buffers", mine.get("broadcast_buffers")))
    )
    static_graph = call_sites.option(arguments, options, 4, "static_graph", None)
    if type(static_graph) is bool:
        journal.fact(prefix + "static_graph", static_graph)
    if type(mine.get("bucket_bytes_cap")) is int:
        journal.fact(prefix + "bucket_cap_mb", mine["bucket_bytes_cap"] / 2**20)
    journal.fact(prefix + "buffers", len(mine.get("modules_buffers") or ()))
    journal.fact(prefix + "world_size", mine["process_group"].size())
