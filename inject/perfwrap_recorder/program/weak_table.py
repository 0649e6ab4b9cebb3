"""Tables by ``id`` of the program's objects, whose entries are removed when the objects die.

A table is a dictionary: id of an object -> (weak reference to it, ...). Its size is limited, and it is never searched.
No weak references to tensors are kept: ``torch.utils.swap_tensors`` would refuse such tensors.
"""

from __future__ import annotations

from _functools import partial
from _weakref import ref


def note(table, thing, most, *known):
    """Add an entry for an object, and return whether there was room."""
    key = id(thing)
    if len(table) >= most and key not in table:
        return False
    table[key] = (reference(table, key, thing), *known)
    return True


def reference(table, key, thing):
    """Return a weak reference to an object that removes the object's entry from a table.

    The callback is in C: in Python a signal handler of the program could run, and what it raises would be lost. ``pop``
    is called with the reference, which is its default value if the entry has gone already.
    """
    return ref(thing, partial(table.pop, key))


def find(table, thing):
    """Return the entry of an object, None if it has none."""
    known = table.get(id(thing))
    return known if known is not None and known[0]() is thing else None
