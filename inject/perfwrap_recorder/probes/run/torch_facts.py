"""Writes the version of torch and its setup: threads, ranks, cores, GPUs; settings_facts.py writes the other facts.

Replaces nothing. Settings are read after a model or an optimizer was first used, then every ten seconds, and
never earlier: reading torch's number of threads fixes that number, as the first operation does. The device is not
called before the program has started it. The facts that begin with ``cuda_`` are those of any device; ``device_type``
says of which, if it is not CUDA's.
"""

from __future__ import annotations

import os

from perfwrap_recorder import guard
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.journal import facts, journal
from perfwrap_recorder.journal.facts import write
from perfwrap_recorder.probes.run import settings_facts

_torch = []  # the module, once it is imported
_world = []  # the id of the group whose ranks were last read


def install(torch):
    """Write the versions now, and the settings later."""
    _torch[:] = [torch]
    _ask_versions(torch)
    journal.every_interval.add(look)
    journal.after_fork.add(facts.forget)
    journal.after_fork.add(_world.clear)
    settings_facts.install(torch)
    journal.cover("probe/torch_facts")


def look():
    """Write the settings that have changed."""
    for torch in _torch:
        for ask in (_ask_versions, _ask_threads, _ask_ranks, _ask_cores, _ask_gpu):
            guard.run(ask.__name__[1:], ask, torch)
        settings_facts.look(torch)


def look_at_ranks():
    """Write the rank of this process as soon as it is known."""
    for torch in _torch:
        guard.run("ask_ranks", _ask_ranks, torch)


def _ask_versions(torch):
    write("torch", str(torch.__version__))
    write("torch_cuda", torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None))


def _ask_threads(torch):
    write("threads", torch.get_num_threads())
    write("interop_threads", torch.get_num_interop_threads())


def _ask_ranks(torch):
    # Only if no launcher has set it in the environment: for example torch.multiprocessing.spawn.
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        # Once for each group: within a compiled region Dynamo would trace these calls.
        group = id(distributed.group.WORLD)
        if _world == [group]:
            return
        _world[:] = [group]
        write("rank", distributed.get_rank())
        write("world_size", distributed.get_world_size())
        write("distributed_backend", distributed.get_backend())


def _ask_cores(_):
    # Of this thread, which is the one that trains.
    if hasattr(os, "sched_getaffinity"):
        write("cores", _ranges(sorted(os.sched_getaffinity(0))))


def _ranges(numbers):
    """Return e.g. ``0-3,8`` for sorted numbers."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in found)


def _ask_gpu(_):
    if not devices.is_started():
        return
    module, device = devices.current.module, devices.current.current_device()
    write("cuda_device", device)
    write("device_type", devices.current.kind if devices.current.kind != "cuda" else None)
    names = ("get_device_name", "get_device_properties", "get_allocator_backend")
    name, properties, allocator = (getattr(module, each, None) for each in names)
    write("cuda_device_name", name and name(device))
    write("cuda_device_uuid", properties and getattr(properties(device), "uuid", None))
    write("cuda_allocator", allocator and allocator())
