"""MaskedTensor, whose answers come from tables by function object: moved, copied, reduced, trained."""

import copy
import warnings

import torch
from moments import check, digest, watch

warnings.filterwarnings("ignore", message=".*prototype.*")
from torch.masked import MaskedTensor, as_masked_tensor, masked_tensor  # noqa: E402


def made(grad=False):
    """Return a tensor of which one half counts."""
    data = torch.arange(6.0).reshape(2, 3)
    return masked_tensor(data, data % 2 == 0, requires_grad=grad)


def described(value):
    """Return the class and the digests of data and mask."""
    if isinstance(value, MaskedTensor):
        return f"{type(value).__name__} {digest(value.get_data())} {digest(value.get_mask())}"
    return digest(value)


@check
def moves():
    """What moves and copies give."""
    source = made()
    calls = [
        lambda t: t.to(torch.float64),
        lambda t: t.to("cpu"),
        lambda t: t.cpu(),
        copy.deepcopy,
        lambda t: t.clone(),
        lambda t: t.detach(),
        lambda t: t.to_tensor(9.0),
        lambda t: t.tolist(),
        lambda t: t.to_dense(),
        lambda t: t.to_sparse_coo(),
        lambda t: t.numpy(),
        lambda t: t[0, 0].item(),
        lambda t: t.copy_(made()),
        lambda t: t.nonzero(),
        lambda t: bool(t.sum() > 1),
    ]
    found = []
    for call in calls:
        try:
            value = call(source)
            found.append(
                described(value) if isinstance(value, torch.Tensor) else f"{type(value).__name__} {value}"
            )
        except Exception as error:
            found.append(f"{type(error).__name__} {str(error)[:60]}")
    return "\n    ".join(found)


@check
def reduces():
    """Sums, means, minima and products, and binary operations."""
    t = made()
    return [
        described(f(t)) for f in (torch.sum, torch.mean, torch.amin, torch.prod, torch.sqrt, torch.Tensor.neg)
    ] + [described(t + t), described(t * as_masked_tensor(torch.ones(2, 3), t.get_mask())), repr(t)]


@check
def learns():
    """Gradients reach what the mask lets through."""
    t = made(grad=True)
    (t * t).sum().backward()
    return described(t.grad)


watch()
