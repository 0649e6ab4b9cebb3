"""The role of this process in the run, and its rank in distributed training.

Roles are inferred from how the process was started: ``main`` (anything that may train), ``agent`` (a launcher
of ranks that itself imports torch), ``helper`` (a server of multiprocessing or a compiler of torch's) and
``worker`` (of a DataLoader).
"""

from __future__ import annotations

import os
import sys

AGENT_MODULES = {
    "accelerate.commands.accelerate_cli",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
}
AGENT_SCRIPTS = {"accelerate", "accelerate-launch", "deepspeed", "fabric", "torchrun"}
RUNS_PATH = ("--run-path", "--run_path")
"""Options of torchrun with which its own forks may be the ranks."""
SERVER_CODE = tuple(
    before + "from multiprocessing.%s import" % server
    for before in ("", "import sys; ")
    for server in ("resource_tracker", "forkserver")
)
"""The beginning of the code that multiprocessing's servers run, before Python 3.14 and since."""
COMPILE_WORKER = "torch/_inductor/compile_worker"
LOADER_MODULE = "torch.utils.data.dataloader"

RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
)
"""Rank, local rank and world size, as torchrun and similar launchers, Open MPI and MPICH name them."""


class Role:
    """The role of a process, and whether probes are useful in it."""

    __slots__ = ("inert", "name")

    def __init__(self, name, inert=False):
        self.name = name
        self.inert = inert
        """No probes here, nor in its children of fork."""


def find_role(argv):
    """Return the role of a process that was started with that command line."""
    kind, entry = find_entry(argv)
    if kind == "-c" and entry.startswith(SERVER_CODE):
        return Role("helper")  # not inert: the children of a fork server may train
    if COMPILE_WORKER in entry.replace(".", "/"):
        return Role("helper", inert=True)
    if entry in AGENT_MODULES if kind == "-m" else os.path.basename(entry) in AGENT_SCRIPTS:
        return Role("agent", inert=not any(word in RUNS_PATH for word in argv))
    return Role("worker" if _is_worker() else "main")


def find_forked_role(parent):
    """Return the role of a process that was just forked by one with the role ``parent``."""
    if parent.inert:
        return parent
    return Role("worker" if _called_from(LOADER_MODULE) else "main")


def find_ranks(environment):
    """Return rank, local rank and world size as a launcher of ranks has set them, each a text or None."""
    for names in RANK_VARIABLES:
        if names[0] in environment:
            return tuple(map(environment.get, names))
    return None, None, None


def find_argv():
    """Return the command line of this process, the interpreter's own options included."""
    if hasattr(sys, "orig_argv"):
        return list(sys.orig_argv)
    with open("/proc/self/cmdline", "rb") as file:
        return os.fsdecode(file.read()).rstrip("\0").split("\0")


def find_entry(argv):
    """Return what Python was started with: ``-m`` and a module, ``-c`` and code, or ``script`` and a path."""
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return "script", word
        if word == "--check-hash-based-pycs":
            next(words, None)
        elif not word.startswith("--"):
            for position, letter in enumerate(word[1:], 2):
                if letter in "cmWX":
                    value = word[position:] or next(words, "")
                    if letter in "cm":
                        return "-" + letter, value
                    break
    return "script", ""


def _is_worker():
    """Return whether this process is a DataLoader worker already, if perfwrap attached to it."""
    state = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(state, "_worker_info", None) is not None


def _called_from(module):
    """Return whether a function of that module is on this thread's stack."""
    frame = sys._getframe(1)
    while frame and frame.f_globals.get("__name__") != module:
        frame = frame.f_back
    return frame is not None


def is_daemon():
    """Return whether this process may have no children: then its loaders may have no workers."""
    processes = sys.modules.get("multiprocessing")
    return bool(processes and processes.current_process().daemon)
