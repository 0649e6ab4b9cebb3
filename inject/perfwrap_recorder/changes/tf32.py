"""Lets float32 products use TF32: ``set_float32_matmul_precision("high")`` and ``cudnn.allow_tf32``.

It is switched on before the first call of an outermost module on a GPU. Refuses on the CPU, on GPUs before Ampere,
if it is on already, and if it is off again at the end.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import outermost_modules
from perfwrap_recorder.experiments.autocasting import BF16_CAPABILITY


def install(torch, change):
    """Switch it on when the model is first used."""
    if not change.needs_gpu(torch):
        return

    def switch_on(module, frame):
        if change.count or outermost_modules.device_of(module) != "cuda":
            return
        if torch.cuda.get_device_capability() < BF16_CAPABILITY:
            change.refuse("this GPU has no TF32")
            return
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            change.refuse("it is on already: the precision of products is %r" % before)
            return
        torch.set_float32_matmul_precision("high")
        if not torch.backends.cudnn.allow_tf32:
            torch.backends.cudnn.allow_tf32 = True
        change.apply(frame, "float32_matmul_precision=%s" % before, "float32_matmul_precision=high")
        change.checks.append(look)

    def look():
        if torch.get_float32_matmul_precision() == "highest":
            change.take_back("the program switches it off again")

    outermost_modules.add_first(change, switch_on)
