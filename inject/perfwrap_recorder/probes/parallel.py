"""Says how models are spread over processes and GPUs, and which lines accumulate gradients without a reduction.

Instruments ``DistributedDataParallel._ddp_init_helper``, with which its construction ends. FSDP and ``DataParallel``
are described at their first call as outermost module, which the forward probe tells of. There a call inside of
``no_sync`` is seen too: nothing is replaced for it, since Dynamo looks into ``no_sync``.

Also instruments ``_sync_buffers`` and ``_post_forward`` of DDP, to time them: the first sends buffers to all ranks,
the second looks for unused parameters. Behind it, twice a second at most, DDP's own logger is asked what it has
measured of the exchange of gradients: it measures the first ten steps and then every hundredth. Never elsewhere: the
logger takes the lock that DDP holds while it calls a communication hook of the program's, in which optimizers may
step.
"""

from __future__ import annotations

from itertools import count

from perfwrap_recorder import (
    call_sites,
    guard,
    journal,
    living,
    plainly,
    timing,
)
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

AFTER_FORWARD = "post_forward"
TIMED = (("_sync_buffers", "buffer_broadcast"), ("_post_forward", AFTER_FORWARD))
"""Methods of DDP that are timed, and how the facts about them begin."""

MEASURED = (
    ("backward_comm_time", "exchange_ns"),
    ("backward_compute_comm_overlap_time", "exchange_overlap_ns"),
    ("unused_parameter_size", "unused_bytes"),
    ("num_buckets_reduced", "buckets"),
)
"""What DDP's logger calls it, and how the facts about it end."""

FIRST_CALLS = 8
"""After so many calls, and whenever they have doubled, is said what they took since it was last said: facts are few."""
PACE_NS = 500_000_000

_next_number = count(1).__next__
_known = {}  # id of a model -> (weak reference to it,)
_measured = {}  # id of a model of DDP's -> [weak reference, prefix of its facts, iteration and moment to ask for next]
_timed = {}  # (prefix of facts, name) -> [calls, calls when it is said next, calls and time since it was last said]


def install(torch):
    """Watch from now on."""
    owner = torch.nn.parallel.DistributedDataParallel
    timing.time_calls(torch, owner._ddp_init_helper, "parallel", _finish_ddp, ("self", "static_graph"))
    for method, name in TIMED:
        function = getattr(owner, method, None)
        timing.time_calls(torch, function, "parallel", _finish_timed_for(name), ("self",))
    journal.after_fork.add(_forget)
    journal.cover("probe/parallel")


def describe(module, frame):
    """Say how a model is spread, at its first call, and at which line it is called inside of ``no_sync``."""
    kind = plainly.name_of(type(module))
    if kind in SYNCING and plainly.own(module).get(SYNCING[kind]) is False:
        call_sites.describe("no_sync", label("no_sync", frame), frame, (("kind", kind),))
    if kind == "DistributedDataParallel":
        return  # was said when it was made
    if living.find(_known, module) is None and living.note(_known, module, MAXIMUM_MODELS):
        guard.run("parallel_facts", _describe, module)


def is_spread(kind):
    """Say whether a class of modules is one that this probe describes."""
    name = plainly.name_of(kind)
    return plainly.module_of(kind).startswith("torch.") and (name in WRAPPERS or name.startswith("FSDP"))


def _describe(module):
    kind, mine = plainly.name_of(type(module)), plainly.own(module)
    prefix = "parallel/%d/" % _next_number()
    journal.fact(prefix + "kind", kind if kind in WRAPPERS else "fully_shard")
    if kind == "DataParallel":
        journal.fact(prefix + "devices", len(mine.get("device_ids") or ()))
    for name in FSDP:
        if plainly.has_type(mine.get(name), (bool, int)):
            journal.fact(prefix + name.lstrip("_"), mine[name])
    for name in FSDP_CHOICES:
        if mine.get(name) is not None:
            journal.fact(prefix + name, getattr(mine[name], "name", ""))


def _finish_ddp(frame, start, duration, values):
    model, static_graph = values
    mine = plainly.own(model)
    prefix = "parallel/%d/" % _next_number()
    journal.fact(prefix + "kind", "DistributedDataParallel")
    journal.fact(prefix + "line", find_place(frame))
    for name in DDP:
        journal.fact(prefix + name, mine.get(name) is True)
    # The setting got another name, which the pickled state translates.
    journal.fact(
        prefix + "broadcast_buffers", bool(mine.get("forward_sync_buffers", mine.get("broadcast_buffers")))
    )
    if type(static_graph) is bool:
        journal.fact(prefix + "static_graph", static_graph)
    if type(mine.get("bucket_bytes_cap")) is int:
        journal.fact(prefix + "bucket_cap_mb", mine["bucket_bytes_cap"] / 2**20)
    journal.fact(prefix + "buffers", len(mine.get("modules_buffers") or ()))
    journal.fact(prefix + "world_size", mine["process_group"].size())
    if len(_measured) < MAXIMUM_MODELS:
        _measured[id(model)] = [living.reference(_measured, id(model), model), prefix, 1, 0]


def _finish_timed_for(name):
    def finish(frame, start, duration, values):
        (model,) = values
        known = _measured.get(id(model))
        if not known or known[0]() is not model:
            return
        times = _timed.get((known[1], name)) or _timed.setdefault((known[1], name), [0, FIRST_CALLS, 0, 0])
        times[0] += 1
        times[2] += 1
        times[3] += duration
        if times[0] >= times[1]:
            journal.fact("%s%s_calls" % (known[1], name), times[0])
            journal.fact("%s%s_ns" % (known[1], name), times[3] // times[2])
            times[1:] = [2 * times[0], 0, 0]
        if name == AFTER_FORWARD and start >= known[3]:
            known[3] = start + PACE_NS
            guard.run("parallel_measured", _ask, model, known)

    return finish


def _ask(model, known):
    """Say what the logger of a model of DDP's has measured since it was last asked."""
    logger = plainly.own(model).get("logger")
    if logger is None:
        return
    found = logger._get_ddp_logging_data().ints_map
    iteration = found.get("iteration", 0)
    if iteration < known[2]:
        return
    known[2] = 2 * iteration or 1
    journal.fact(known[1] + "iteration", iteration)
    for key, name in MEASURED:
        if type(found.get(key)) is int:
            journal.fact(known[1] + name, found[key])


def _forget():
    """A forked child cannot use its parent's models of DDP's."""
    _measured.clear()
    _timed.clear()
