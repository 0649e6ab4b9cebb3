"""Finds the lines whose autograd graphs stay alive: the usual cause of memory that grows step by step.

Replaces nothing. Twice a second the next few results of outermost module calls, and roots of backward passes, are
marked: the dictionary that autograd keeps for the node of such a tensor (``grad_fn.metadata``) gets one object of ours,
which lives exactly as long as the node, and to which only a weak reference is kept. So no tensor is kept alive, no
graph is traversed as a whole, and no collection is started. The user could notice the entry in ``metadata``. At most
NOTES nodes are kept for each of at most SITES lines, however long the program runs.

Not seen: graphs whose root is neither a module call nor a backward pass, and those of subclasses of tensors.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import guard, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import tensor_access
from perfwrap_recorder.program.source_lines import find_place

PACE_NS = 500_000_000
AT_ONCE = 8
"""Tensors that are marked after each check."""
SITES = 20
NOTES = 64
"""If a line has this many, every other one is forgotten, and only every other one is marked from then on."""
OLD_STEPS = 30
"""A node that lives this many steps was kept, on purpose or by mistake; a usual one dies with the next step."""
KEY = "perfwrap"
DEPTH = 16
ENDS = ("NoneType", "AccumulateGrad")
"""Edges that lead to no node, or to a parameter's, which lives as long as the parameter."""

left = 0  # tensors that are still to be marked before the next check
_deep_at = -1  # when at most this many are left, the next result of a module is followed; -1 for done
_looks = 0
_due = 0
_torch = []  # the module, once it is imported
_sites = {}  # (kind, text id of a label) -> Site


class Token:
    """Lives as long as the node in whose metadata it is."""

    __slots__ = ("__weakref__",)


class Site:
    """The marks of one line: ``notes`` are pairs of a step and a weak reference to a token."""

    __slots__ = ("notes", "number", "said", "seen", "stride")

    def __init__(self, number):
        self.number = number
        self.notes = []
        self.seen = 0
        self.stride = 1
        self.said = 0, 0


def install(torch):
    """Start recording."""
    _torch[:] = [torch]
    journal.look_often(guard.protect("live_graphs", look))
    journal.after_fork.add(_forget)
    journal.cover("probe/live_graphs")


def look():
    """Write how many of the old marks are still alive, and allow more marks."""
    global left, _due, _deep_at, _looks
    moment = now()
    if moment < _due:
        return
    _due = moment + PACE_NS
    left = AT_ONCE
    # A different one each time, since steps may call several models one after the other.
    _looks += 1
    _deep_at = AT_ONCE - 1 - _looks % (AT_ONCE // 2)
    steps = journal.count_steps()
    for site in list(_sites.values()):
        old = [token for step, token in site.notes if steps - step >= OLD_STEPS]
        found = len(old), sum([token() is not None for token in old])
        if found != site.said:
            for name, value, said in zip(("old", "alive"), found, site.said):  # noqa: B905 - Python 3.8
                if value != said:
                    journal.fact("live_graph/%d/%s" % (site.number, name), value)
            site.said = found


def note(kind, label, frame, value):
    """Mark the node of the first tensor with a graph in ``value``, made by a ``kind`` of call at a line.

    For one call of a module the node DEPTH edges further is marked, too: it also lives if not the result but something
    made on the way to it is kept. Each edge costs microseconds, so that is done once between two looks.
    """
    global left, _deep_at
    node = next((tensor_access.look(torch, _node_of, torch, value) for torch in _torch), None)
    if node is tensor_access.LATER:
        return
    left -= 1
    if node is None:
        return
    _put_token(kind, label, frame, node)
    if kind == "forward" and left <= _deep_at:
        _deep_at = -1
        deep = _deepest(node)
        if deep is not node:
            _put_token("inside", label, frame, deep)


def _put_token(kind, label, frame, node):
    metadata = static_access.slot(
        node, "metadata"
    )  # nodes of the program's own functions have attributes of its own
    if type(metadata) is not dict:
        return
    site = _sites.get((kind, label))
    if site is None:
        if len(_sites) >= SITES:
            return
        site = _sites[kind, label] = Site(len(_sites) + 1)
        prefix = "live_graph/%d/" % site.number
        journal.fact(prefix + "line", find_place(frame))
        journal.fact(prefix + "kind", kind)
    site.seen += 1
    if site.seen % site.stride:
        return
    token = metadata[KEY] = Token()
    site.notes.append((journal.count_steps(), ref(token)))
    if len(site.notes) >= NOTES:
        del site.notes[::2]
        site.stride *= 2


def _deepest(node):
    """Return the node at the end of at most DEPTH first edges that does not belong to a parameter."""
    for _ in range(DEPTH):
        edges = static_access.slot(node, "next_functions") or ()
        further = [one for one, _ in edges if static_access.name_of(type(one)) not in ENDS]
        if not further:
            break
        node = further[0]
    return node


def _node_of(torch, value):
    """Return the autograd node of a tensor, or of the first one in a container that has one."""
    if static_access.is_a(value, dict):
        value = list(dict.values(value))
    kind = type(value)
    tensors = value[:AT_ONCE] if kind is list or kind is tuple else (value,)
    for tensor in tensors:
        # For a view that was written to, autograd would make a new node.
        if type(tensor) is torch.Tensor and not (tensor._is_view() and tensor._version):
            node = tensor.grad_fn
            if node is not None:
                return node
    return None


def _forget():
    """Forget all marks, in the child of a fork."""
    global left, _deep_at
    left, _deep_at = 0, -1
    _sites.clear()
