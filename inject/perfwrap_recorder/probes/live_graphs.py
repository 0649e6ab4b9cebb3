"""Says from which lines autograd graphs stay alive, which is what most memory that grows step by step is made of.

Replaces nothing. Twice a second the next few results of outermost module calls, and tensors that backward passes began
with, are noted: the dictionary that autograd keeps beside the node of such a tensor (``grad_fn.metadata``) gets one
object of ours, which lives exactly as long as the node does, and of which only a weak reference is kept. So no tensor
is kept alive, no graph is walked through as a whole, and no collection is begun. The user could notice the entry in
``metadata``. At most NOTES nodes are remembered of each of at most SITES lines, however long the program runs.

Not seen are graphs that neither a module call nor a backward pass is the root of, and those of subclasses of tensors.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import guard, journal, plainly, quiet
from perfwrap_recorder.clock import now
from perfwrap_recorder.source_lines import find_place

PACE_NS = 500_000_000
AT_ONCE = 8
"""So many tensors are noted of the steps that follow a look."""
SITES = 20
NOTES = 64
"""When a line has so many, every other one is forgotten and only every other one is noted from then on."""
OLD_STEPS = 30
"""A node that lives for so many steps was kept on purpose or by mistake; a healthy one ends with the next step."""
KEY = "perfwrap"
DEPTH = 16
ENDS = ("NoneType", "AccumulateGrad")
"""Edges that lead to no node, or to a parameter's, which lives as long as the parameter."""

left = 0  # how many tensors are to be noted before the next look
_deep_at = -1  # once no more than so many are left, the next result of a module is walked into; -1 for done
_looks = 0
_due = 0
_torch = []  # the module, once it is there
_sites = {}  # (kind, text id of a label) -> Site


class Token:
    """Lives as long as the node in whose metadata it lies."""

    __slots__ = ("__weakref__",)


class Site:
    """What was noted at one line: ``notes`` are pairs of a step and a weak reference to a token."""

    __slots__ = ("notes", "number", "said", "seen", "stride")

    def __init__(self, number):
        self.number = number
        self.notes = []
        self.seen = 0
        self.stride = 1
        self.said = 0, 0


def install(torch):
    """Watch from now on."""
    _torch[:] = [torch]
    journal.look_often(guard.protect("live_graphs", look))
    journal.after_fork.add(_forget)
    journal.cover("probe/live_graphs")


def look():
    """Say how many of what was noted long ago still lives, and have more be noted."""
    global left, _due, _deep_at, _looks
    moment = now()
    if moment < _due:
        return
    _due = moment + PACE_NS
    left = AT_ONCE
    # Another one each time, since steps may call several models in turn.
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
    """Note the node of the first tensor with a graph in ``value``, made by a ``kind`` of call at a line.

    Of one module's call the node DEPTH edges further on is noted, too: it also lives where not the result but something
    made on the way to it is kept. Each edge costs microseconds, so that is done once between two looks.
    """
    global left, _deep_at
    node = next((quiet.look(torch, _node_of, torch, value) for torch in _torch), None)
    if node is quiet.LATER:
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
    metadata = plainly.slot(
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
    """Return the node that the first edges lead to, DEPTH edges on at most, that is none of a parameter."""
    for _ in range(DEPTH):
        edges = plainly.slot(node, "next_functions") or ()
        further = [one for one, _ in edges if plainly.name_of(type(one)) not in ENDS]
        if not further:
            break
        node = further[0]
    return node


def _node_of(torch, value):
    """Return the autograd node behind a tensor, or behind the first one of a container that has one."""
    if plainly.is_a(value, dict):
        value = list(dict.values(value))
    kind = type(value)
    tensors = value[:AT_ONCE] if kind is list or kind is tuple else (value,)
    for tensor in tensors:
        # Of a view that was written to, autograd would make a new node for us.
        if type(tensor) is torch.Tensor and not (tensor._is_view() and tensor._version):
            node = tensor.grad_fn
            if node is not None:
                return node
    return None


def _forget():
    """A forked child tells of its own graphs only."""
    global left, _deep_at
    left, _deep_at = 0, -1
    _sites.clear()
