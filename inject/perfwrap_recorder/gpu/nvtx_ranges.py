"""NVTX ranges for the phases that the probes time, so that tools such as Nsight Systems show them.

They are pushed if torch was built with CUDA and a tool collects NVTX or ``--nvtx`` was given, by the ``nvtx``
package of the program's environment, or else by ``torch.cuda.nvtx``. Neither starts CUDA.
"""

from __future__ import annotations

import os

from perfwrap_recorder.journal import journal, thinning

DOMAIN = "perfwrap"


def find(torch):
    """Return the functions push(name) and pop(), or None if no ranges are wanted."""
    is_wanted = _is_listened_to(os.environ) or getattr(journal.settings, "nvtx", False)
    if not torch.version.cuda or not is_wanted:
        return None
    nvtx = find_package()
    if nvtx is None:
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    return (lambda name: nvtx.push_range(name, domain=DOMAIN)), (lambda: nvtx.pop_range(domain=DOMAIN))


def find_package():
    """Return the nvtx package; None if there is none, or if it would send nothing to the tool.

    Version 0.2.17 sends nothing if a tool does not announce its domains, as nsys 2022.4 does not.
    """
    try:
        import nvtx  # only here: the program's environment may lack it, and most runs want no ranges
    except ImportError:
        return None
    find_domain = getattr(nvtx, "get_domain", None)
    is_silent = find_domain is not None and type(find_domain(DOMAIN)).__name__ == "DummyDomain"
    return None if is_silent else nvtx


def of_phases(torch):
    """Return push(name) and pop() for the phases of steps, or None; ranges are pushed for every step."""
    found = find(torch)
    if found is not None:
        thinning.may_pause = False
    return found


def _is_listened_to(environment):
    """Return whether Nsight Systems, or any tool that NVTX loads, profiles this process."""
    return "NVTX_INJECTION64_PATH" in environment or any(name.startswith("NSYS_") for name in environment)
