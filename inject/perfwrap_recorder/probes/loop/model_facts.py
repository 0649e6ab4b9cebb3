"""Writes what a model is: class, size, types, devices, memory format. Replaces nothing; forward.py calls it.

Its parameters also show on which device the program trains, see ``gpu/devices.py``.
"""

from __future__ import annotations

from types import CodeType, FunctionType

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.loop import embedding_facts
from perfwrap_recorder.program import model_parts, tensor_access

SKIPPING = "pack_padded", "pack_sequence", "nested_tensor", "unpad"
"""Parts of the names of functions with which models skip padding by themselves."""
MIXING = (
    "attention",
    "attn",
    "rnn",
    "lstm",
    "gru",
    "transformer",
    "conv1d",
    "mamba",
    "mixer",
)
"""Parts of the names of classes and functions that combine all positions of a sequence."""

embedding = set()  # names of models that look up embeddings


def describe(torch, module, name):
    """Write what a model is, unless it has no parameters (a loss function). LATER: it would be observed at present."""
    return tensor_access.look(torch, _describe, torch, module, name)


def _describe(torch, module, name):
    start = now()
    # Parameters of lazy modules that were not called yet have no size.
    unknown = torch.nn.parameter.UninitializedTensorMixin
    parameters = [each for _, each in model_parts.parameters_of(torch, module)]
    parameters = [each for each in parameters if not static_access.is_a(each, unknown)]
    if not parameters:
        return
    key = "model/" + name
    journal.fact(key + "/class", static_access.full_name(type(module)))
    # Tensors that dispatch themselves are not read, and without them the sums would be wrong.
    if all(tensor_access.is_silent(torch, each) for each in parameters):
        guard.run("device", devices.choose, torch, tensor_access.value(torch, parameters[0], "device").type)
        _describe_parameters(torch, parameters, key)
    guard.run("model_sequences", describe_sequences, torch, module, name, key)
    embedding_facts.note(torch, module)
    journal.record(start, now() - start, 0, journal.text("model facts"), journal_format.PERFWRAP)


def _describe_parameters(torch, parameters, key):
    value = tensor_access.value
    journal.fact(key + "/parameters", sum([value(torch, parameter, "numel") for parameter in parameters]))
    for name in ("device", "dtype"):
        journal.fact(key + "/" + name, value(torch, parameters[0], name))
        journal.fact("%s/%ss" % (key, name), count_elements(torch, parameters, name))
    images = [parameter for parameter in parameters if value(torch, parameter, "dim") == 4]
    if images:
        last = sum(map(is_channels_last_with(torch), images))
        journal.fact(key + "/channels_last", "%d of %d" % (last, len(images)))


def describe_sequences(torch, module, name, key):
    """Write which of the names in SKIPPING and MIXING the code of a model with embeddings uses."""
    parts = [each for _, each in model_parts.modules_of(torch, module)]
    if not any(static_access.is_a(part, torch.nn.Embedding) for part in parts):
        return
    embedding.add(name)
    # By id: a metaclass may define a hash.
    kinds = {id(kind): kind for part in parts for kind in static_access.mro_of(type(part))}.values()
    own = [kind for kind in kinds if not static_access.module_of(kind).startswith("torch.")]
    members = [value for kind in own for value in list(static_access.members_of(kind).values())]
    called = " ".join(sorted(set().union(*map(_names_in, members))))
    classes = " ".join([static_access.name_of(kind).lower() for kind in kinds])
    journal.fact(key + "/embeds", True)
    journal.fact(key + "/skips_padding", any(each in called for each in SKIPPING))
    mixing = classes + called.replace("attention_mask", "")
    journal.fact(key + "/mixes_positions", any(each in mixing for each in MIXING))


def _names_in(value, depth=3):
    """Return the names in a function's code, with those of functions inside it and of those that it calls."""
    for inner in ("__func__", "fget"):
        if static_access.has_type(value, (staticmethod, classmethod, property)):
            value = getattr(value, inner, value)
    if type(value) is not FunctionType:
        return set()
    wrapped = vars(value).get("__wrapped__")
    codes, names = [value.__code__], _names_in(wrapped, depth - 1) if depth else set()
    for code in codes:
        names.update(code.co_names)
        codes.extend(each for each in code.co_consts if type(each) is CodeType)
    if depth > 1:
        for name in list(names):
            helper = value.__globals__.get(name)
            if type(helper) is FunctionType and not _is_torchs(helper):
                names |= _names_in(helper, 1)
    return names


def _is_torchs(function):
    return type(function.__module__) is str and function.__module__.startswith("torch.")


def count_elements(torch, parameters, attribute):
    """Return the number of elements per type or device: ``torch.bfloat16 1200, torch.float32 30``."""
    counts = {}
    for parameter in parameters:
        value = str(tensor_access.value(torch, parameter, attribute))
        counts[value] = counts.get(value, 0) + tensor_access.value(torch, parameter, "numel")
    return ", ".join("%s %d" % (value, counts[value]) for value in sorted(counts, key=lambda v: -counts[v]))


def is_channels_last_with(torch):
    """Return a function that returns 1 for weights in channels-last order.

    Those that are in both orders (1 x 1 kernels, one input channel) do not count.
    """

    def is_channels_last(weight):
        is_contiguous = torch.Tensor.is_contiguous
        if tensor_access.value(torch, weight, "layout") is not torch.strided or is_contiguous(weight):
            return 0
        return int(is_contiguous(weight, memory_format=torch.channels_last))

    return is_channels_last
