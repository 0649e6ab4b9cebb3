"""Says which torch this is and how it is set up: threads, ranks, cores, GPUs, and by settings_facts.py all else.

Replaces nothing. Settings are read after a model or an optimizer was first used, then every ten seconds, and
never earlier: to ask torch for its number of threads fixes that number, as the first operation does. CUDA is
asked nothing before the program has started it.
"""

from __future__ import annotations

import os

from perfwrap_recorder import facts, guard, journal
from perfwrap_recorder.facts import say
from perfwrap_recorder.probes import settings_facts

_torch = []  # the module, once it is there
_world = []  # the id of the group that the ranks were last asked of


def install(torch):
    """Say the versions now, and the settings later."""
    _torch[:] = [torch]
    _ask_versions(torch)
    journal.every_interval.add(look)
    journal.after_fork.add(facts.forget)
    journal.after_fork.add(_world.clear)
    settings_facts.install(torch)
    journal.cover("probe/torch_facts")


def look():
    """Say the settings that have changed."""
    for torch in _torch:
        for ask in (_ask_versions, _ask_threads, _ask_ranks, _ask_cores, _ask_gpu):
            guard.run(ask.__name__[1:], ask, torch)
        settings_facts.look(torch)


def look_at_ranks():
    """Say who this process is among others, as soon as that is known."""
    for torch in _torch:
        guard.run("ask_ranks", _ask_ranks, torch)


def _ask_versions(torch):
    say("torch", str(torch.__version__))
    say("torch_cuda", torch.version.cuda or torch.version.hip)


def _ask_threads(torch):
    say("threads", torch.get_num_threads())
    say("interop_threads", torch.get_num_interop_threads())


def _ask_ranks(torch):
    # Only where no launcher has said so in the environment: torch.multiprocessing.spawn, for one.
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        # Once for each group: within a compiled region Dynamo would look at what these questions call.
        group = id(distributed.group.WORLD)
        if _world == [group]:
            return
        _world[:] = [group]
        say("rank", distributed.get_rank())
        say("world_size", distributed.get_world_size())
        say("distributed_backend", distributed.get_backend())


def _ask_cores(_):
    # Of the thread that asks, which is the one that trains.
    if hasattr(os, "sched_getaffinity"):
        say("cores", _ranges(sorted(os.sched_getaffinity(0))))


def _ranges(numbers):
    """Return e.g. ``0-3,8`` for sorted numbers."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in found)


def _ask_gpu(torch):
    if torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        say("cuda_device", device)
        say("cuda_device_name", torch.cuda.get_device_name(device))
        say("cuda_device_uuid", getattr(torch.cuda.get_device_properties(device), "uuid", None))
        say("cuda_allocator", torch.cuda.get_allocator_backend())
