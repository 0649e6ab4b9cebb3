"""The modules that the program calls with gradients enabled, by weak references.

forward.py reports the first CALLS calls of outermost modules.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder.program import batches, model_parts, tensor_access

CALLS = 400
MAX_MODELS = 64
"""Maximum number of modules."""

left = CALLS
_seen = {}  # id of a module -> Model
_names = {}  # name of a class -> how many modules of it were seen


class Model:
    """One module: ``fed`` counts calls with something that requires gradients, or that could not be looked at."""

    __slots__ = ("calls", "fed", "module", "name")

    def __init__(self, module, name):
        number = _names[name] = _names.get(name, 0) + 1
        self.module, self.name = ref(module), name if number == 1 else "%s#%d" % (name, number)
        self.calls = self.fed = 0


def note(torch, module, name, held, is_training):
    """Note a call with gradients; ``held`` is what the module was called with."""
    global left
    left -= 1
    model = _seen.get(id(module))
    if model is None or model.module() is not module:
        if len(_seen) >= MAX_MODELS or not model_parts.has_parts(module):
            return
        model = _seen[id(module)] = Model(module, name)
    model.calls += is_training
    tensors, is_all = batches.tensors_in(torch, held)
    # LATER is true, too.
    model.fed += bool(not is_all or tensor_access.look(torch, _require_gradients, tensors))


def _require_gradients(tensors):
    return any(each.requires_grad for each in tensors)


def is_one_of_several(model):
    """Return whether the model shares its class's name with another, or whether not all models are known."""
    return len(_seen) >= MAX_MODELS or "#" in model.name or _names[model.name] > 1


def alive():
    """Return (Model, module) of the modules that are alive."""
    found = [(model, model.module()) for model in list(_seen.values())]
    return [(model, module) for model, module in found if module is not None]
