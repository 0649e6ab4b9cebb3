"""Calls outermost modules under autocast, for the changes ``bf16`` and ``fp16``.

What the module returns is float32 again where autocast made it narrower, so the loss and all that follows stay as they
are. Backward runs outside of autocast, as it should. Refuses where the program uses autocast already or the model has
another type, and on devices where the type is not fast.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import outermost_modules
from perfwrap_recorder.experiments.outermost_modules import device_of, each_tensor

BF16_CAPABILITY = 8, 0
"""NVIDIA GPUs support bfloat16 from Ampere on; earlier ones only emulate it."""


def install(torch, change, dtype, devices):
    """Call outermost modules under autocast to that type."""
    narrow = str(dtype).rpartition(".")[2]

    def layer(module, call, frame):
        device = device_of(module)
        reason = find_reason(torch, module, device, dtype, devices)
        if reason:
            change.refuse(reason)
            return None
        change.apply(frame, "%s in float32" % type(module).__name__, "autocast to %s" % narrow)
        return around(torch, call, device, dtype)

    outermost_modules.add(torch, change, layer)


def find_reason(torch, module, device, dtype, devices):
    """Return why the module cannot be called under that autocast, "" if it can."""
    name = type(module).__name__
    if device not in devices:
        return "%s is on %s, where %s brings nothing" % (name, device, dtype)
    if is_on(torch, device):
        return "%s is called under autocast already" % name
    types = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if torch.float32 not in types:
        return "the parameters of %s are not float32" % name
    if device == "cuda" and dtype is torch.bfloat16 and not torch.version.hip:
        if torch.cuda.get_device_capability() < BF16_CAPABILITY:
            return "this GPU only imitates bfloat16"
    return ""


def is_on(torch, device):
    """Return whether autocast is on for that device in this thread."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(device)
    return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()


def around(torch, call, device, dtype):
    """Return the call under autocast."""
    autocast = torch.autocast

    def widened(value):
        return value.float() if isinstance(value, torch.Tensor) and value.dtype is dtype else value

    def changed(*arguments, **options):
        if is_on(torch, device):  # the program's own, in some of its calls
            return call(*arguments, **options)
        with autocast(device, dtype=dtype):
            result = call(*arguments, **options)
        return each_tensor(widened, result)

    return changed
