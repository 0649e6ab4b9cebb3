"""Frameworks choose by signatures: how schedulers are stepped, what hooks and functions say of their arguments."""

import inspect
import typing

import torch
from moments import check, digest, watch
from torch import nn, optim
from torch.optim import lr_scheduler

SCHEDULERS = {
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "step": lambda o: lr_scheduler.StepLR(o, 2),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], [2]
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.LambdaLR(o, lambda n: 0.9**n)]
    ),
}
LISTED = (
    optim.Optimizer.zero_grad,
    optim.SGD.step,
    optim.Adam.step,
    optim.LBFGS.step,
    lr_scheduler.StepLR.step,
    torch.save,
    lr_scheduler.ReduceLROnPlateau.step,
    nn.utils.clip_grad_norm_,
    nn.utils.clip_grad_value_,
    torch.load,
    nn.Module.__call__,
    nn.Module.to,
    torch.Tensor.backward,
    torch.autograd.backward,
    torch.amp.GradScaler.step,
    torch.amp.GradScaler.unscale_,
    torch.utils.data.DataLoader.__init__,
    torch.utils.data.DataLoader.__iter__,
    torch.utils.data.default_collate,
    torch.compile,
    torch.Tensor.unique,
    nn.functional.mse_loss,
    lr_scheduler.LRScheduler.step,
    optim.swa_utils.SWALR.step,
    optim.Optimizer.step,
    nn.Embedding.forward,
)


@check
def steps():
    """Rates of schedulers that are stepped with a metric where their step takes one."""
    found = []
    for name, make in SCHEDULERS.items():
        optimizer = optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        scheduler = make(optimizer)
        takes = "metrics" in inspect.signature(scheduler.step).parameters
        takes_now = inspect.getfullargspec(type(scheduler).step).args
        for _ in range(4):
            optimizer.step()
            scheduler.step(*([1.0] if takes else []))
        found.append((name, takes, takes_now, optimizer.param_groups[0]["lr"], type(scheduler.step).__name__))
    return "\n    ".join(map(str, found))


@check
def listed():
    """What functions say of their arguments, defaults, hints, names, modules, files and wrapped functions."""
    found = []
    for function in LISTED:
        code = getattr(inspect.unwrap(function), "__code__", None)
        try:
            hints = sorted(typing.get_type_hints(function))
        except Exception as error:
            hints = type(error).__name__
        found.append(
            (
                function.__qualname__,
                function.__module__,
                str(inspect.signature(function)),
                hints,
                function.__defaults__,
                function.__kwdefaults__,
                inspect.getfullargspec(function).args,
                code and (code.co_varnames[:4], code.co_argcount, code.co_name, code.co_filename[-40:]),
                function.__code__.co_varnames[:4],
                hasattr(function, "__wrapped__"),
                sorted(vars(function)),
                (function.__doc__ or "")[:20],
                len(inspect.getsource(function)),
            )
        )
    return "\n    ".join(str(row).replace("\n", " ") for row in found)


@check
def mistakes():
    """What calls with wrong arguments say."""
    found = []
    layer = nn.Linear(2, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    tries = (
        lambda: torch.ones(1).item(3),
        lambda: torch.Tensor.to(self=torch.ones(1)),
        lambda: plateau.step(),
        lambda: optimizer.zero_grad(3, 4),
        lambda: nn.utils.clip_grad_norm_(),
        lambda: torch.save(3),
        lambda: layer(),
        lambda: torch.ones(1).copy_(),
        lambda: torch.ones(1).to("nowhere"),
        lambda: torch.ones(2).tolist(1),
        lambda: optimizer.step(1, 2, 3),
        lambda: torch.ones(2).backward(),
        lambda: torch.Tensor.cpu(),
        lambda: torch.Tensor.cpu(3),
        lambda: torch.nonzero(),
        lambda: torch.ones(2).to(dtyp=1),
    )
    for call in tries:
        try:
            call()
        except Exception as error:
            found.append(f"{type(error).__name__} {' '.join(str(error).split())[:300]}")
    return "\n    ".join(found), digest(layer.weight)


watch(counted=False)
