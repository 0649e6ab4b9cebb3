"""Walks through a model's modules and parameters without calling the program's code.

``named_parameters`` and similar methods would read attributes of modules, which their classes may override.
"""

from __future__ import annotations

from perfwrap_recorder import static_access


def modules_of(torch, module):
    """Return (path, module) of a module and all inside it, each once, in torch's order."""
    kind, found, seen, waiting = torch.nn.Module, [], set(), [("", module)]
    while waiting:
        path, each = waiting.pop()
        if id(each) in seen or not static_access.is_a(each, kind):
            continue
        seen.add(id(each))
        found.append((path, each))
        inner = static_access.items_of(_own(each).get("_modules"))
        waiting += [(path + "." + name if path else name, part) for name, part in reversed(inner)]
    return found


def parameters_of(torch, module, most=None):
    """Return (path, parameter) of a module and all inside it, each once; few more than ``most``."""
    found, seen = [], set()
    for path, each in modules_of(torch, module):
        for name, parameter in static_access.items_of(_own(each).get("_parameters")):
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((path + "." + name if path else name, parameter))
        if most is not None and len(found) > most:
            break
    return found


def has_parts(module):
    """Return whether a module has parameters or modules of its own."""
    mine = _own(module)
    return bool(
        static_access.items_of(mine.get("_parameters")) or static_access.items_of(mine.get("_modules"))
    )


def part(module, name):
    """Return the direct submodule with this name; None if there is none."""
    return dict(static_access.items_of(_own(module).get("_modules"))).get(name)


def is_training(module):
    """Return whether a module is in training mode."""
    mine = _own(module)
    found = mine.get("training")
    if static_access.has_type(found, (bool, int)):
        return bool(found)
    inner, compiled = part(module, "_orig_mod"), mine.get("_c")
    if inner is not None:  # torch.compile's wrapper has no mode of its own
        return is_training(inner)
    is_script = static_access.full_name(type(compiled)) == "torch.ScriptModule"
    return bool(is_script and compiled.getattr("training"))


def _own(module):
    """Return a module's own dictionary; if torch.jit has traced it, that of the traced module."""
    mine = static_access.own(module)
    made = mine.get("_actual_script_module")
    return mine if made is None else static_access.own(made)
