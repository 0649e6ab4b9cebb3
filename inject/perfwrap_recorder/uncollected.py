"""Keeps the recorder's start from triggering collections of garbage."""

from __future__ import annotations

import gc


def uncollected(function):
    """Return the function as one during which no garbage is collected.

    The recorder's start and its changes of torch make many objects, most of which soon go: the program's own
    collections would come earlier and more often, and some take 0.2 s.
    """

    def call(*arguments):
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            function(*arguments)
        finally:
            if is_enabled:
                gc.enable()

    return call
