"""Says what a model is: class, size, types, devices, memory format. Replaces nothing; forward.py asks."""

from __future__ import annotations

from types import CodeType, FunctionType

from perfwrap_recorder import guard, journal, journal_format
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
    """Say what a model is; a module without parameters (a loss function) is none."""
    start = now()
    # A mode or subclass of the program's must not see these questions.
    with torch._C.DisableTorchFunction():
        # Not the module's own method: a class of the user's may override it.
        parameters = [each for _, each in torch.nn.Module.named_parameters(module)]
        if not parameters:
            return
        kind = type(module)
        key = "model/" + name
        journal.fact(key + "/class", "%s.%s" % (kind.__module__, kind.__qualname__))
        journal.fact(key + "/parameters", sum(parameter.numel() for parameter in parameters))
        journal.fact(key + "/device", parameters[0].device)
        journal.fact(key + "/dtype", parameters[0].dtype)
        journal.fact(key + "/devices", count_elements(parameters, "device"))
        journal.fact(key + "/dtypes", count_elements(parameters, "dtype"))
        images = [parameter for parameter in parameters if parameter.dim() == 4]
        if images:
            last = sum(map(is_channels_last_with(torch), images))
            journal.fact(key + "/channels_last", "%d of %d" % (last, len(images)))
        guard.run("model_sequences", describe_sequences, torch, module, name, key)
        embedding_facts.note(torch, module)
    journal.record(start, now() - start, 0, journal.text("model facts"), journal_format.PERFWRAP)


def describe_sequences(torch, module, name, key):
    """Say of a model that looks up embeddings what its classes and their code name: see SKIPPING and MIXING."""
    parts = list(torch.nn.Module.modules(module))  # not an override of the program's
    if not any(isinstance(part, torch.nn.Embedding) for part in parts):
        return
    embedding.add(name)
    kinds = {kind for part in parts for kind in type(part).__mro__}
    own = [kind for kind in kinds if not str(kind.__module__).startswith("torch.")]
    called = " ".join(
        sorted(set().union(*(_names_in(value) for kind in own for value in vars(kind).values())))
    )
    classes = " ".join(kind.__name__.lower() for kind in kinds)
    journal.fact(key + "/embeds", True)
    journal.fact(key + "/skips_padding", any(each in called for each in SKIPPING))
    mixing = classes + called.replace("attention_mask", "")
    journal.fact(key + "/mixes_positions", any(each in mixing for each in MIXING))


def _names_in(value, depth=3):
    """Return the names that a function's code asks for, with those of functions inside of it and that it calls."""
    for inner in ("__func__", "fget"):
        if type(value) in (staticmethod, classmethod, property):
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
            if type(helper) is FunctionType and not str(helper.__module__).startswith("torch."):
                names |= _names_in(helper, 1)
    return names


def count_elements(parameters, attribute):
    """Return how many elements have which type or device: ``torch.bfloat16 1200, torch.float32 30``."""
    counts = {}
    for parameter in parameters:
        value = str(getattr(parameter, attribute))
        counts[value] = counts.get(value, 0) + parameter.numel()
    return ", ".join("%s %d" % (value, counts[value]) for value in sorted(counts, key=lambda v: -counts[v]))


def is_channels_last_with(torch):
    """Return a function that says 1 for weights in channels-last order.

    Those that are in both orders (1 x 1 kernels, one input channel) do not count.
    """

    def is_channels_last(weight):
        if weight.layout is not torch.strided or weight.is_contiguous():
            return 0
        return int(weight.is_contiguous(memory_format=torch.channels_last))

    return is_channels_last
