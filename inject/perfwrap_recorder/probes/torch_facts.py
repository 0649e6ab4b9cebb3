"""Says which torch this is and how it is set up: threads, precision, determinism, ranks, GPUs.

Replaces nothing. Settings are read after a model or an optimizer was first used, then every ten seconds, and
never earlier: to ask torch for its number of threads fixes that number, as the first operation does. CUDA is
asked nothing before the program has started it.
"""

from __future__ import annotations

from perfwrap_recorder import guard, journal

_said = {}  # key -> value as last written
_torch = []  # the module, once it is there


def install(torch):
    """Say the versions now, and the settings later."""
    _torch[:] = [torch]
    _ask_versions(torch)
    journal.every_interval.add(look)
    journal.after_fork.add(_forget)
    journal.cover("probe/torch_facts")


def look():
    """Say the settings that have changed."""
    for torch in _torch:
        for ask in (_ask_versions, _ask_threads, _ask_numerics, _ask_ranks, _ask_gpu):
            guard.run(ask.__name__[1:], ask, torch)


def look_at_ranks():
    """Say who this process is among others, as soon as that is known."""
    for torch in _torch:
        guard.run("ask_ranks", _ask_ranks, torch)


def _ask_versions(torch):
    _say("torch", str(torch.__version__))
    _say("torch_cuda", torch.version.cuda or torch.version.hip)


def _ask_threads(torch):
    _say("threads", torch.get_num_threads())
    _say("interop_threads", torch.get_num_interop_threads())


def _ask_numerics(torch):
    _say("float32_matmul_precision", torch.get_float32_matmul_precision())
    _say("deterministic", torch.are_deterministic_algorithms_enabled())
    _say("cudnn_benchmark", torch.backends.cudnn.benchmark)


def _ask_ranks(torch):
    # Only where no launcher has said so in the environment: torch.multiprocessing.spawn, for one.
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        _say("rank", distributed.get_rank())
        _say("world_size", distributed.get_world_size())
        _say("distributed_backend", distributed.get_backend())


def _ask_gpu(torch):
    if torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        _say("cuda_device", device)
        _say("cuda_device_name", torch.cuda.get_device_name(device))
        _say("cuda_device_uuid", getattr(torch.cuda.get_device_properties(device), "uuid", None))


def _forget():
    """Say everything again, in the child of a fork."""
    _said.clear()


def _say(key, value):
    if value is not None and _said.get(key) != value:
        _said[key] = value
        journal.fact(key, value)
