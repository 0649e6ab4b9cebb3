"""Times the calls of torch.distributed that the program makes itself: collectives, barriers, making the groups.

Replaces none of these functions, since Dynamo knows collectives by identity: each is a wrapper of torch's own
that calls what its closure holds as ``func``, and there the timing one is put. So ``all_reduce`` stays the same
object, with the same code, and Dynamo's replacement of it within graphs goes on; where it does look into such a
function, ``is_compiling()`` makes ours nothing but a call. The user could notice one more frame in a traceback.

A call on another group than that of all ranks bears the group's name, which is the same on all of its ranks; who they
are is a fact.

Not seen are the collectives that C++ starts itself (DDP's reducer), those inside of compiled graphs, and those
which torch's own wrappers of models start (FSDP). With ``async_op=True``, and on a GPU, the call only enqueues:
its time is that of the call, and the wait for its result is not seen.
"""

from __future__ import annotations

import sys
from sys import _getframe

from perfwrap_recorder import batches, guard, journal, journal_format, plainly, quiet, wrapping
from perfwrap_recorder.clock import now
from perfwrap_recorder.facts import say
from perfwrap_recorder.probes import torch_facts
from perfwrap_recorder.rest import resting
from perfwrap_recorder.source_lines import label

COLLECTIVE = journal_format.COLLECTIVE

HOLDER = "wrapper"
"""The name of the function that torch's decorators put around each collective."""

MAKERS = ("init_process_group", "new_group", "split_group")
"""Functions that make groups instead of using one."""

OUTSIDE = "of others"
"""What a group is called whose ranks this one is not among: the call returns at once."""

MOST_TENSORS = 64
"""So many tensors of a list are measured."""


def install(torch):
    """Watch from now on."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    folder = module.__file__.rpartition("/")[0] + "/" if module else ""
    size_of, group_of = _size_for(torch), _group_for(module)
    for name, function in list(vars(module).items()) if module else ():
        # Nothing is asked of what is no function: a deprecated object there warns at any look at it.
        if type(function) is wrapping.FUNCTION and not name.startswith("_"):
            begin = guard.protect("collectives", _begin_with(name, folder, group_of))
            finish = guard.protect("collectives", _finish_with(name, size_of))
            _put_inside(torch, function, begin, finish)
    journal.cover("probe/collectives")


def _put_inside(torch, function, begin, finish):
    """Have a function that torch has decorated call a timing one instead of what it decorates."""
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


class _Holder:
    """Lends a function an owner, which ``wrapping.patch`` asks for."""


def _make(begin, finish):
    close = guard.protect("collectives", journal.close_call)

    def make(original, is_compiling):
        def wrapper(*arguments, **options):
            if is_compiling() or COLLECTIVE in resting:
                return original(*arguments, **options)
            start = now()
            place = begin(_getframe().f_back, start, arguments, options)
            if not place:
                return original(*arguments, **options)
            try:
                result = original(*arguments, **options)
            except BaseException:
                close(COLLECTIVE)
                raise
            finish(place, start, now() - start, arguments, options)
            return result

        return wrapper

    return make


def _begin_with(name, folder, group_of):
    def begin(frame, start, arguments, options):
        """Return the label of the call, 0 where it is torch's own: a part of another, or of its wrappers of models."""
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
    """Return a function that says the name of the group that a call is on, empty for that of all ranks."""
    kind = getattr(module, "ProcessGroup", None)
    outsider = getattr(getattr(module, "GroupMember", None), "NON_GROUP_MEMBER", None)

    def group_of(arguments, options):
        found = options.get("group")
        for argument in () if found is not None or kind is None else arguments:
            if argument is outsider or plainly.is_a(argument, kind):
                found = argument
        if found is not None and found is outsider:
            return OUTSIDE
        world = getattr(module, "_world", None)
        if found is None or world is None or found is world.default_pg:
            return ""
        name = world.pg_names.get(found, "")
        if name:
            say("group/%s/ranks" % name, ",".join(map(str, sorted(world.pg_group_ranks.get(found, ())))))
        return name

    return group_of


def _size_for(torch):
    """Return a function that says how many bytes the largest argument has, -1 where none is a tensor."""

    def size_of(arguments, options):
        most = -1
        for argument in (*arguments[:2], *options.values()):
            kind = type(argument)
            tensors = argument[:MOST_TENSORS] if kind is list or kind is tuple else (argument,)
            tensors = [each for each in tensors if quiet.is_plain(torch, each)]
            size = quiet.look(torch, batches.bytes_of, tensors) if tensors else -1
            most = max(most, -1 if size is quiet.LATER else size)
        return most

    return size_of
