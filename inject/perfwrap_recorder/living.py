"""What is known of things of the program's as long as they live: tables by ``id``, whose entries go with the things.

A table is a dictionary: id of a thing -> (weak reference to it, ...). Nothing in it is ever looked for one by one, and
it has room for so many at a time. Of tensors no weak reference is kept: ``torch.utils.swap_tensors`` would refuse them.
"""

from __future__ import annotations

from _functools import partial
from _weakref import ref


def note(table, thing, most, *known):
    """Put ``known`` down for a thing, and say whether there was room."""
    key = id(thing)
    if len(table) >= most and key not in table:
        return False
    table[key] = (reference(table, key, thing), *known)
    return True


def reference(table, key, thing):
    """Return a weak reference to a thing with which an entry of a table goes.

    In C: where Python ran, a signal handler of the program's could run, and what it raises would be lost. The
    reference, with which ``pop`` is called, is what it returns where the entry has gone already.
    """
    return ref(thing, partial(table.pop, key))


def find(table, thing):
    """Return the entry of a thing, None where it has none."""
    known = table.get(id(thing))
    return known if known is not None and known[0]() is thing else None
