"""Converts outermost modules to the memory format ``channels_last``, and the images that they are called with.

The parameters are converted in place, as ``Module.to`` does, so optimizers keep them. Refuses for a model without 2-d
convolutions, one that has the format already, and if DDP or FSDP holds the parameters.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import outermost_modules
from perfwrap_recorder.experiments.outermost_modules import each_tensor

IMAGES = 4
"""Dimensions of a batch of images, and of a 2-d convolution's weight."""

TAKEN_IN = ("DistributedDataParallel", "FullyShardedDataParallel")


def install(torch, change):
    """Convert models of images to channels last."""
    channels_last = torch.channels_last

    def convert(value):
        if isinstance(value, torch.Tensor) and value.dim() == IMAGES and value.is_floating_point():
            return value.contiguous(memory_format=channels_last)
        return value

    def layer(module, call, frame):
        reason = find_reason(module, channels_last)
        if reason:
            change.refuse(reason)
            return None
        module.to(memory_format=channels_last)
        change.apply(frame, "%s contiguous" % type(module).__name__, "channels_last")

        def changed(*arguments, **options):
            return call(*each_tensor(convert, arguments), **each_tensor(convert, options))

        return changed

    outermost_modules.add(torch, change, layer)


def find_reason(module, channels_last):
    """Return why the module is not converted, "" if it is."""
    name = type(module).__name__
    if name in TAKEN_IN:
        return "%s holds the parameters in a layout of its own: convert the model before it is wrapped" % name
    weights = [weight for weight in module.parameters() if weight.dim() == IMAGES and weight.shape[1] > 1]
    if not weights:
        return "%s has no 2-d convolutions" % name
    if all(weight.is_contiguous(memory_format=channels_last) for weight in weights):
        return "%s is channels_last already" % name
    return ""
