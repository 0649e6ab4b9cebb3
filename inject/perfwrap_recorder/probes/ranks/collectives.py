"""Times the calls of torch.distributed that the program makes itself: collectives, barriers, making the groups.

Replaces none of these functions, since Dynamo recognises collectives by identity: each is a wrapper of torch's own
that calls ``func`` of its closure, and that is replaced by a timing function. So ``all_reduce`` stays the same object
with the same code, and Dynamo still replaces it within graphs; if Dynamo traces such a function, ``is_compiling()``
reduces ours to a call. Up to Python 3.10 a traceback contains one more frame.

A call on a group of only some ranks has the group's name, which is the same on all of its ranks; the ranks are a fact.

Not seen: the collectives that C++ starts itself (DDP's reducer), those inside compiled graphs, and those
which torch's own wrappers of models start (FSDP). With ``async_op=True``, and on a GPU, the call only enqueues:
its time is that of the call, and the wait for its result is not seen.
"""

from __future__ import annotations

import sys
from sys import _getframe

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.journal import journal
from perfwrap_recorder.journal.facts import write
from perfwrap_recorder.journal.paused_detail import paused
from perfwrap_recorder.probes.run import torch_facts
from perfwrap_recorder.program import batches, tensor_access
from perfwrap_recorder.program.source_lines import drop_frames, label

COLLECTIVE = journal_format.COLLECTIVE

HOLDER = "wrapper"
"""The name of the function that torch's decorators put around each collective."""

MAKERS = ("init_process_group", "new_group", "split_group")
"""Functions that make groups instead of using one."""

OUTSIDE = "of others"
"""The name of a group without this rank: the call returns at once."""

MAX_TENSORS = 64
"""Maximum number of tensors of a list that are measured."""

_replaced = []  # (cell of a decorated function, its original function, the one that times it)


def install(torch):
    """Start recording."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    folder = module.__file__.rpartition("/")[0] + "/" if module else ""
    size_of, group_of = _size_for(torch), _group_for(module)
    for name, function in list(vars(module).items()) if module else ():
        # Only functions: a deprecated object there warns whenever it is read.
        if type(function) is wrapping.FUNCTION and not name.startswith("_"):
            begin = guard.protect("collectives", _begin_with(name, folder, group_of))
            finish = guard.protect("collectives", _finish_with(name, size_of))
            _put_inside(torch, function, begin, finish)
    journal.cover("probe/collectives")


def _put_inside(torch, function, begin, finish):
    """Make a function that torch has decorated call a timing function instead of the original."""
    code = function.__code__
    if code.co_name != HOLDER or "func" not in code.co_freevars:
        return
    cell = function.__closure__[code.co_freevars.index("func")]
    original = cell.cell_contents
    if wrapping.is_wrapper(original) or getattr(function, "__wrapped__", None) is not original:
        return
    holder = _Holder()
    holder.inner = original
    wrapping.patch(torch, holder, "inner", _make(begin, finish))
    cell.cell_contents = holder.inner
    _replaced.append((cell, original, holder.inner))


def uninstall():
    """Put the originals back into torch's decorated functions."""
    for cell, original, wrapper in _replaced:
        if cell.cell_contents is wrapper:
            cell.cell_contents = original


def reinstall():
    """Undo ``uninstall``."""
    for cell, original, wrapper in _replaced:
        if cell.cell_contents is original:
            cell.cell_contents = wrapper


class _Holder:
    """An owner of a function, which ``wrapping.patch`` needs."""


def _make(begin, finish):
    close = guard.protect("collectives", journal.close_call)

    def make(original, is_compiling):
        def wrapper(*arguments, **options):
            if is_compiling():
                return original(*arguments, **options)
            start = now()
            place = 0 if COLLECTIVE in paused else begin(_getframe().f_back, start, arguments, options)
            try:
                result = original(*arguments, **options)
            except BaseException as error:
                if place:
                    close(COLLECTIVE)
                drop_frames(error)
                raise
            if place:
                finish(place, start, now() - start, arguments, options)
            return result

        return wrapper

    return make


def _begin_with(name, folder, group_of):
    def begin(frame, start, arguments, options):
        """Return the label of the call, 0 if torch makes it: as part of another, or in its wrappers of models."""
        caller = frame and frame.f_back
        if caller is None or caller.f_code.co_filename.startswith(folder):
            return 0
        full_name = name + " async" if options.get("async_op") is True else name
        group = "" if name in MAKERS else group_of(arguments, options)
        if group:
            full_name += " of group " + group
        place = label(full_name, caller)
        journal.open_call(start, place, COLLECTIVE)
        return place

    return begin


def _finish_with(name, size_of):
    def finish(place, start, duration, arguments, options):
        journal.close_call(COLLECTIVE)
        size = -1 if name in MAKERS else size_of(arguments, options)
        journal.span(start, duration, size, place, COLLECTIVE)
        if name == "init_process_group":
            torch_facts.look_at_ranks()

    return finish


def _group_for(module):
    """Return a function that returns the name of a call's group, empty for that of all ranks."""
    kind = getattr(module, "ProcessGroup", None)
    outsider = getattr(getattr(module, "GroupMember", None), "NON_GROUP_MEMBER", None)

    def group_of(arguments, options):
        found = options.get("group")
        for argument in () if found is not None or kind is None else arguments:
            if argument is outsider or static_access.is_a(argument, kind):
                found = argument
        if found is not None and found is outsider:
            return OUTSIDE
        world = getattr(module, "_world", None)
        if found is None or world is None or found is world.default_pg:
            return ""
        name = world.pg_names.get(found, "")
        if name:
            write("group/%s/ranks" % name, ",".join(map(str, sorted(world.pg_group_ranks.get(found, ())))))
        return name

    return group_of


def _size_for(torch):
    """Return a function that returns the bytes of the largest argument, -1 if none is a tensor."""

    def size_of(arguments, options):
        most = -1
        for argument in (*arguments[:2], *options.values()):
            kind = type(argument)
            tensors = argument[:MAX_TENSORS] if kind is list or kind is tuple else (argument,)
            tensors = [each for each in tensors if tensor_access.is_plain(torch, each)]
            size = tensor_access.look(torch, batches.bytes_of, tensors) if tensors else -1
            most = max(most, -1 if size is tensor_access.LATER else size)
        return most

    return size_of
