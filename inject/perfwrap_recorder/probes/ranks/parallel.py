"""Writes how models are spread over processes and GPUs, and which lines accumulate gradients without a reduction.

Instruments ``DistributedDataParallel._ddp_init_helper``, with which its construction ends. FSDP and ``DataParallel``
are described at their first call as outermost module, which the forward probe reports. There a call inside
``no_sync`` is seen too: nothing is replaced for it, since Dynamo looks into ``no_sync``.

Also instruments ``_sync_buffers`` and ``_post_forward`` of DDP, to time them: the first sends buffers to all ranks,
the second looks for unused parameters. After it, at most twice a second, DDP's own logger is read for what it has
measured of the exchange of gradients: it measures the first ten steps and then every hundredth. Never elsewhere: the
logger takes the lock that DDP holds while it calls a communication hook of the program, in which optimizers may
step.
"""

from __future__ import annotations

from itertools import count

from perfwrap_recorder import guard, static_access
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import call_sites, weak_table
from perfwrap_recorder.program.source_lines import find_place, label

MAX_MODELS = 100

DDP = ("find_unused_parameters", "gradient_as_bucket_view")
FSDP = ("world_size", "limit_all_gathers", "forward_prefetch", "_use_orig_params")
FSDP_CHOICES = ("sharding_strategy", "backward_prefetch")
"""Settings that are enum members."""

SYNCING = {
    "DistributedDataParallel": "require_backward_grad_sync",
    "FullyShardedDataParallel": "_sync_gradients",
}
"""The attribute that ``no_sync`` sets to False."""

WRAPPERS = ("DataParallel", "FullyShardedDataParallel", "DistributedDataParallel")

AFTER_FORWARD = "post_forward"
TIMED = (("_sync_buffers", "buffer_broadcast"), ("_post_forward", AFTER_FORWARD))
"""Methods of DDP that are timed, and the beginning of their facts."""

MEASURED = (
    ("backward_comm_time", "exchange_ns"),
    ("backward_compute_comm_overlap_time", "exchange_overlap_ns"),
    ("unused_parameter_size", "unused_bytes"),
    ("num_buckets_reduced", "buckets"),
)
"""The name in DDP's logger, and the end of the fact's name."""

FIRST_CALLS = 8
"""The times are written after this many calls, and whenever the number has doubled: facts must be few."""
PACE_NS = 500_000_000

_next_number = count(1).__next__
_known = {}  # id of a model -> (weak reference to it,)
_measured = {}  # id of a model of DDP's -> [weak reference, prefix of its facts, iteration and time of next reading]
_timed = {}  # (prefix of facts, name) -> [calls, calls at the next writing, calls and time since the last writing]


def install(torch):
    """Start recording."""
    owner = torch.nn.parallel.DistributedDataParallel
    timing.time_calls(torch, owner._ddp_init_helper, "parallel", _finish_ddp, ("self", "static_graph"))
    for method, name in TIMED:
        function = getattr(owner, method, None)
        timing.time_calls(torch, function, "parallel", _finish_timed_for(name), ("self",))
    journal.after_fork.add(_forget)
    journal.cover("probe/parallel")


def describe(module, frame):
    """Write how a model is spread, at its first call, and the lines that call it inside ``no_sync``."""
    kind = static_access.name_of(type(module))
    if kind in SYNCING and static_access.own(module).get(SYNCING[kind]) is False:
        call_sites.describe("no_sync", label("no_sync", frame), frame, (("kind", kind),))
    if kind == "DistributedDataParallel":
        return  # was written when it was made
    if weak_table.find(_known, module) is None and weak_table.note(_known, module, MAX_MODELS):
        guard.run("parallel_facts", _describe, module)


def is_spread(kind):
    """Return whether a class of modules is one that this probe describes."""
    name = static_access.name_of(kind)
    return static_access.module_of(kind).startswith("torch.") and (
        name in WRAPPERS or name.startswith("FSDP")
    )


def _describe(module):
    kind, mine = static_access.name_of(type(module)), static_access.own(module)
    prefix = "parallel/%d/" % _next_number()
    journal.fact(prefix + "kind", kind if kind in WRAPPERS else "fully_shard")
    if kind == "DataParallel":
        journal.fact(prefix + "devices", len(mine.get("device_ids") or ()))
    for name in FSDP:
        if static_access.has_type(mine.get(name), (bool, int)):
            journal.fact(prefix + name.lstrip("_"), mine[name])
    for name in FSDP_CHOICES:
        if mine.get(name) is not None:
            journal.fact(prefix + name, getattr(mine[name], "name", ""))


def _finish_ddp(frame, start, duration, values):
    model, static_graph = values
    mine = static_access.own(model)
    prefix = "parallel/%d/" % _next_number()
    journal.fact(prefix + "kind", "DistributedDataParallel")
    journal.fact(prefix + "line", find_place(frame))
    for name in DDP:
        journal.fact(prefix + name, mine.get(name) is True)
    # The setting was renamed; the pickled state translates the name.
    journal.fact(
        prefix + "broadcast_buffers", bool(mine.get("forward_sync_buffers", mine.get("broadcast_buffers")))
    )
    if type(static_graph) is bool:
        journal.fact(prefix + "static_graph", static_graph)
    if type(mine.get("bucket_bytes_cap")) is int:
        journal.fact(prefix + "bucket_cap_mb", mine["bucket_bytes_cap"] / 2**20)
    journal.fact(prefix + "buffers", len(mine.get("modules_buffers") or ()))
    journal.fact(prefix + "world_size", mine["process_group"].size())
    if len(_measured) < MAX_MODELS:
        _measured[id(model)] = [weak_table.reference(_measured, id(model), model), prefix, 1, 0]


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
    """Write what the logger of a DDP model has measured since the last reading."""
    logger = static_access.own(model).get("logger")
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
    """Forget all models: the child of a fork cannot use its parent's DDP models."""
    _measured.clear()
    _timed.clear()
