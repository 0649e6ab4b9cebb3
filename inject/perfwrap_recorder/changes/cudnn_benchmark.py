"""Lets cuDNN try which algorithm is fastest: ``torch.backends.cudnn.benchmark``.

It is switched on before the first call of an outermost module on a GPU. Refuses on the CPU, if it is on already,
if the program asks for deterministic algorithms, and if it is off again at the end.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import outermost_modules


def install(torch, change):
    """Switch it on when the model is first used."""
    if not change.needs_gpu(torch):
        return
    cudnn = torch.backends.cudnn

    def switch_on(module, frame):
        if change.count or outermost_modules.device_of(module) != "cuda":
            return
        if cudnn.benchmark:
            change.refuse("it is on already")
        elif cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
            change.refuse("the program asks for deterministic algorithms")
        else:
            cudnn.benchmark = True
            change.apply(frame, "cudnn.benchmark=False", "cudnn.benchmark=True")
            change.checks.append(look)

    def look():
        if not cudnn.benchmark:
            change.take_back("the program switches it off again")

    outermost_modules.add_first(change, switch_on)
