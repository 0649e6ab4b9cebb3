"""Parametrizations, spectral_norm and weight_norm of both generations: moved, copied, saved, trained, removed."""

import copy
import io
import warnings

import torch
from moments import check, digest, watch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

warnings.filterwarnings("ignore", category=FutureWarning)
MAKERS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "own": lambda m: (parametrize.register_parametrization(m, "weight", Symmetric()), m)[1],
}


class Symmetric(nn.Module):
    """Makes a matrix symmetric, and moves something in each call."""

    def forward(self, matrix):
        """Return the symmetric matrix."""
        return (matrix.triu() + matrix.triu(1).mT).to(torch.float64).to(matrix.dtype)


@check
def lives():
    """What each kind is through a move, a copy, a save, a step and its removal."""
    found = []
    for name, make in MAKERS.items():
        torch.manual_seed(5)
        layer = make(nn.Linear(4, 4)).double().to("cpu").float()
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        layer.load_state_dict(torch.load(file))
        try:
            twin = copy.deepcopy(layer)
        except RuntimeError as error:
            twin = str(error)[:50]
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
        found.append(f"{name} {type(layer).__name__} {type(twin).__name__} {digest(layer.weight.detach())}")
        if parametrize.is_parametrized(layer):
            with parametrize.cached():
                same = layer.weight is layer.weight
            parametrize.remove_parametrizations(layer, "weight")
            found.append(f"{same} {type(layer).__name__} {digest(layer.weight)}")
    return "\n    ".join(found)


watch(2000, 400, counted=False)
