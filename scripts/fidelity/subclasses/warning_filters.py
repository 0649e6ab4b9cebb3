"""Warnings and their filters by module, how often each is shown, and from which file and line they seem to come."""

import warnings

import torch
from moments import check, watch

complex_one = torch.ones(2, dtype=torch.complex64)
model = torch.nn.Linear(2, 2)


def real():
    """Warn in C++: the imaginary part is thrown away."""
    return complex_one.to(torch.float32)


def copied():
    """Warn in C++ from a copy."""
    return torch.ones(2).copy_(complex_one)


def scheduled():
    """Warn in Python: a scheduler before its optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()


def broadcast():
    """Warn in Python of sizes."""
    torch.nn.functional.mse_loss(torch.ones(2, 1), torch.ones(2))


def leaf():
    """Warn of a gradient that is asked of no leaf."""
    return (model.weight * 2).grad


def scalar():
    """Warn where a tensor that needs a gradient becomes a number."""
    return torch.tensor(torch.ones(1, requires_grad=True)), float(model.weight.sum())


def clipped():
    """Warn of nothing to clip."""
    torch.nn.utils.clip_grad_norm_((p for p in ()), 1.0)


WARNERS = real, copied, scheduled, broadcast, leaf, scalar, clipped


def shown(*filters):
    """Say which warnings are shown, with the file and line of each, under the filters."""
    torch.set_warn_always(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for action, keywords in filters:
            warnings.filterwarnings(action, **keywords)
        for _ in range(2):
            for warner in WARNERS:
                warner()
    return [
        (w.category.__name__, w.filename.rpartition("/")[2], w.lineno, str(w.message)[:40]) for w in caught
    ]


@check
def filters():
    """Warnings with no filter, with one by module, by line, and as errors."""
    main = {"module": "__main__"}
    every = shown(("always", {}))
    once = shown(("default", {}))
    quiet = shown(("always", {}), ("ignore", main))
    own = shown(("ignore", {}), ("always", main))
    try:
        error = shown(("error", {"module": "__main__"}))
    except Warning as warning:
        error = f"raised {warning}"[:80]
    return "\n    ".join(map(str, [every, once, quiet, own, error]))


@check
def printed():
    """Warnings on stderr, as they come."""
    torch.set_warn_always(False)
    for warner in WARNERS:
        warner()


watch()
