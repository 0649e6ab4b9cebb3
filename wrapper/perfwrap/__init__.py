"""perfwrap: find out why a PyTorch training command is slow, without changing it.

``perfwrap.analyze`` and ``perfwrap.compare`` are the Python API; the rest serves the commands. This file imports
nothing, not even from the standard library: the monitors load it before they set up their path.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from perfwrap.api import Analysis, analyze, compare
    from perfwrap.errors import PerfwrapError

__all__ = ["Analysis", "PerfwrapError", "__version__", "analyze", "compare"]

__version__ = "0.1.0"

_HOMES = {
    "Analysis": "perfwrap.api",
    "analyze": "perfwrap.api",
    "compare": "perfwrap.api",
    "PerfwrapError": "perfwrap.errors",
}


_MAGIC = "perfwrap.notebook.cell_magic"


def load_ipython_extension(shell: object) -> None:
    """Add ``%%perfwrap`` to a notebook; IPython calls it for ``%load_ext perfwrap``."""
    from importlib import import_module

    import_module(_MAGIC).load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Remove ``%%perfwrap`` again; IPython calls it for ``%unload_ext perfwrap``."""
    from importlib import import_module

    import_module(_MAGIC).unload(shell)


def __getattr__(name: str) -> object:
    """Import a part of the API when it is first used: recording must work, and start fast, without polars."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
