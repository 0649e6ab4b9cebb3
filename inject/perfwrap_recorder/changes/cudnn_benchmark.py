"""Lets cuDNN try which algorithm is fastest: ``torch.backends.cudnn.benchmark``.

It is switched on before the first call of an outermost module on a GPU. Refuses on the CPU, where it is on already,
where the program asks for deterministic algorithms, and where it is off again at the end.
"""

from __future__ import annotations

from perfwrap_recorder import outermost


def install(torch, change):
    """Switch it on when the model is first used."""
    if not change.needs_gpu(torch):
        return
    cudnn = torch.backends.cudnn

    def switch_on(module, frame):
        if change.count or outermost.device_of(module) != "cuda":
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

    outermost.add_first(change, switch_on)
