"""Reads the program's objects without running any of the program's code.

A class of the program may have a ``__getattr__``, a ``__len__``, an ``__eq__``, properties, a metaclass. These
functions use only what Python itself keeps of an object: its type, the type's attributes, and the object's dictionary.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MethodType

PLAIN = (bool, int, float, str)
"""Types whose values can be written without running code of the program."""

members_of = type.__dict__["__dict__"].__get__
"""The attributes of a class itself."""
mro_of = type.__dict__["__mro__"].__get__
"""A class and its bases."""
name_of = type.__dict__["__name__"].__get__
"""The name of a class."""

_is_subclass = type.__subclasscheck__
_qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__


def is_a(thing, *kinds):
    """Return whether an object is an instance of one of the classes; ``isinstance`` would ask it for ``__class__``."""
    mine = type(thing)
    return any(_is_subclass(kind, mine) for kind in kinds)


def is_kind_of(mine, *kinds):
    """Return whether a class is one of the classes or inherits from one."""
    return any(_is_subclass(kind, mine) for kind in kinds)


def has_type(thing, kinds):
    """Return whether an object's type is one of the classes; ``in`` would call an ``==`` of a metaclass."""
    mine = type(thing)
    return any(mine is kind for kind in kinds)


def own(thing):
    """Return the dictionary of an object's own attributes; an empty one if it has none."""
    found = slot(thing, "__dict__")
    return {} if found is None else found


def slot(thing, name):
    """Return an attribute that is implemented in C, even if Python code overrides it; None if there is none."""
    for kind in mro_of(type(thing)):
        found = members_of(kind).get(name)
        if type(found) is GetSetDescriptorType:
            return found.__get__(thing)
    return None


def member(kind, name):
    """Return the attribute of a class or of the first base that has it, unbound; None if none has it."""
    for each in mro_of(kind):
        found = members_of(each)
        if name in found:
            return found[name]
    return None


def codes_of(kind):
    """Return the ids of the code of all functions of a class and its bases, and of those inside decorators."""
    found = set()
    for each in mro_of(kind):
        for function in list(members_of(each).values()):
            while type(function) is FunctionType:
                found.add(id(function.__code__))
                function = function.__dict__.get("__wrapped__")
    return found


def module_of(kind):
    """Return the name of the module that a class is from; empty if that is no string."""
    found = _module_of(kind)
    return found if type(found) is str else ""


def full_name(kind):
    """Return the name of a class with its module."""
    return "%s.%s" % (module_of(kind), _qualname_of(kind))


def name_of_callable(thing):
    """Return the full name of a class or function, or of the class of any other object."""
    if type(thing) is MethodType:
        thing = thing.__func__
    if has_type(thing, (FunctionType, BuiltinFunctionType)):
        module = thing.__module__
        return "%s.%s" % (module if type(module) is str else "", thing.__qualname__)
    return full_name(thing if is_a(thing, type) else type(thing))


def items_of(mapping):
    """Return the items of a dictionary, or of one of torch's substitutes for one; none of other objects."""
    if is_a(mapping, dict):
        return list(dict.items(mapping))
    return list(mapping.items()) if module_of(type(mapping)).startswith("torch.") else []
