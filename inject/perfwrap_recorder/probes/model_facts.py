"""Says what a model is: class, size, types, devices, memory format. Replaces nothing; forward.py asks."""

from __future__ import annotations

from types import CodeType, FunctionType

from perfwrap_recorder import guard, journal, journal_format, model_parts, plainly, quiet
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import embedding_facts

SKIPPING = "pack_padded", "pack_sequence", "nested_tensor", "unpad"
"""Parts of the names of functions by which models leave padding out by themselves."""
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
"""Parts of the names of classes and functions by which models work on all positions of a sequence."""

embedding = set()  # names of models that look up embeddings


def describe(torch, module, name):
    """Say what a model is; a module without parameters (a loss function) is none. LATER: nobody may ask at present."""
    return quiet.look(torch, _describe, torch, module, name)


def _describe(torch, module, name):
    start = now()
    # Those of lazy modules that were not called yet have nothing to tell.
    unknown = torch.nn.parameter.UninitializedTensorMixin
    parameters = [each for _, each in model_parts.parameters_of(torch, module)]
    parameters = [each for each in parameters if not plainly.is_a(each, unknown)]
    if not parameters:
        return
    key = "model/" + name
    journal.fact(key + "/class", plainly.full_name(type(module)))
    # What dispatches by itself is asked nothing, and without it sums would be wrong.
    if all(quiet.is_silent(torch, each) for each in parameters):
        _describe_parameters(torch, parameters, key)
    guard.run("model_sequences", describe_sequences, torch, module, name, key)
    embedding_facts.note(torch, module)
    journal.record(start, now() - start, 0, journal.text("model facts"), journal_format.PERFWRAP)


def _describe_parameters(torch, parameters, key):
    value = quiet.value
    journal.fact(key + "/parameters", sum([value(torch, parameter, "numel") for parameter in parameters]))
    for name in ("device", "dtype"):
        journal.fact(key + "/" + name, value(torch, parameters[0], name))
        journal.fact("%s/%ss" % (key, name), count_elements(torch, parameters, name))
    images = [parameter for parameter in parameters if value(torch, parameter, "dim") == 4]
    if images:
        last = sum(map(is_channels_last_with(torch), images))
        journal.fact(key + "/channels_last", "%d of %d" % (last, len(images)))


def describe_sequences(torch, module, name, key):
    """Say of a model that looks up embeddings what its classes and their code name: see SKIPPING and MIXING."""
    parts = [each for _, each in model_parts.modules_of(torch, module)]
    if not any(plainly.is_a(part, torch.nn.Embedding) for part in parts):
        return
    embedding.add(name)
    # By id: a metaclass may have a hash of its own.
    kinds = {id(kind): kind for part in parts for kind in plainly.mro_of(type(part))}.values()
    own = [kind for kind in kinds if not plainly.module_of(kind).startswith("torch.")]
    members = [value for kind in own for value in list(plainly.members_of(kind).values())]
    called = " ".join(sorted(set().union(*map(_names_in, members))))
    classes = " ".join([plainly.name_of(kind).lower() for kind in kinds])
    journal.fact(key + "/embeds", True)
    journal.fact(key + "/skips_padding", any(each in called for each in SKIPPING))
    mixing = classes + called.replace("attention_mask", "")
    journal.fact(key + "/mixes_positions", any(each in mixing for each in MIXING))


def _names_in(value, depth=3):
    """Return the names that a function's code asks for, with those of functions inside of it and that it calls."""
    for inner in ("__func__", "fget"):
        if plainly.has_type(value, (staticmethod, classmethod, property)):
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
    """Return how many elements have which type or device: ``torch.bfloat16 1200, torch.float32 30``."""
    counts = {}
    for parameter in parameters:
        value = str(quiet.value(torch, parameter, attribute))
        counts[value] = counts.get(value, 0) + quiet.value(torch, parameter, "numel")
    return ", ".join("%s %d" % (value, counts[value]) for value in sorted(counts, key=lambda v: -counts[v]))


def is_channels_last_with(torch):
    """Return a function that says 1 for weights in channels-last order.

    Those that are in both orders (1 x 1 kernels, one input channel) do not count.
    """

    def is_channels_last(weight):
        is_contiguous = torch.Tensor.is_contiguous
        if quiet.value(torch, weight, "layout") is not torch.strided or is_contiguous(weight):
            return 0
        return int(is_contiguous(weight, memory_format=torch.channels_last))

    return is_channels_last
