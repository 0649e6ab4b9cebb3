"""Closes the window before the program does what PyTorch does otherwise while a mode is on the stack.

TorchScript code is called: an error inside of it would have no text. Or a class of tensors is made: a mode may keep
PyTorch's constructor from making its tensors, see ``window_obstacles.py``. In old versions ``as_subclass`` fails, too.

While a window is open, these classes have another attribute, which calls ``begins`` when Python looks it up for a call.
What is called is the original, so no traceback has a further frame.
"""

from __future__ import annotations

_replaced = []  # (class, name, what the class itself had or None)


class Aside:
    """Stands for an attribute of a class: returns the same as the original, and calls ``begins`` before."""

    __slots__ = ("begins", "is_for_class", "original")

    def __init__(self, original, begins, is_for_class):
        self.original, self.begins, self.is_for_class = original, begins, is_for_class

    def __get__(self, instance, owner=None):
        """Return what the original returns."""
        if self.is_for_class or instance is not None:
            self.begins(owner)
        return self.original.__get__(instance, owner)


def start(torch, script_begins, class_begins, convert_begins):
    """Call ``script_begins(kind)`` before TorchScript runs, ``class_begins(kind)`` when a class of tensors is made.

    And ``convert_begins(kind)``, if it is not None, before ``Tensor.as_subclass``.
    """
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        original = vars(kind)["__call__"]
        _replace(kind, "__call__", original, Aside(original, script_begins, False))
    made = Aside(vars(object)["__init_subclass__"], class_begins, True)
    _replace(torch.Tensor, "__init_subclass__", None, made)
    if convert_begins is not None:
        converts = Aside(torch.Tensor.as_subclass, convert_begins, False)
        _replace(torch.Tensor, "as_subclass", None, converts)


def stop():
    """Give the classes back what they had."""
    while _replaced:
        kind, name, original = _replaced.pop()
        if original is None:
            delattr(kind, name)
        else:
            setattr(kind, name, original)


def _replace(kind, name, original, aside):
    _replaced.append((kind, name, original))
    setattr(kind, name, aside)
