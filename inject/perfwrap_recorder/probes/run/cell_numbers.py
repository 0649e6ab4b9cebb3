"""Writes which cells of a notebook ran: IPython's name of the code of each cell, with its number; and the notebook.

Replaces nothing; it reads the table that IPython keeps for its own tracebacks, every ten seconds and at the end. The
text of a cell is not written.
"""

from __future__ import annotations

import atexit
import os
import sys

from perfwrap_recorder import guard
from perfwrap_recorder.journal import facts, journal
from perfwrap_recorder.static_access import is_a, members_of, own

SHELL = "IPython.core.interactiveshell"
MAX_CELLS = 2000
"""Known cells; of more, the ones that ran last are written."""


def install(torch):
    """Write the cells that have run so far, and later ones."""
    if SHELL in sys.modules:
        _look()
        journal.every_interval.add(_look)
        # Called before the journal's own function, which was registered earlier.
        atexit.register(_look)
        journal.cover("probe/cell_numbers")


def _look():
    guard.run("cell_numbers", _write)


def _write():
    module = sys.modules.get(SHELL)
    kind = getattr(module, "InteractiveShell", None)
    shell = members_of(kind).get("_instance") if is_a(kind, type) else None
    if shell is None:
        return
    names = own(own(shell).get("compile")).get("_filename_map")
    if type(names) is dict:
        for name, number in list(names.items())[-MAX_CELLS:]:
            if type(name) is str and type(number) is int:
                facts.write("cell/" + name, number)
    variables = own(shell).get("user_ns")
    of_editor = variables.get("__vsc_ipynb_file__") if type(variables) is dict else None
    notebook = os.environ.get("JPY_SESSION_NAME") or of_editor
    if type(notebook) is str and notebook.endswith(".ipynb"):
        facts.write("notebook", notebook)
