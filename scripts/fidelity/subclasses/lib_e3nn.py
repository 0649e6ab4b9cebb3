"""e3nn: compiled and scripted tensor products, moved, copied, pickled, saved and trained."""

import copy
import io
import pickle
import warnings

import torch
from moments import check, digest, kind, watch

warnings.filterwarnings("ignore")
from e3nn import nn as enn  # noqa: E402
from e3nn import o3  # noqa: E402

MAKERS = {
    "linear": lambda: o3.Linear("2x0e+1x1o", "1x0e+1x1o"),
    "full": lambda: o3.FullyConnectedTensorProduct("1x0e+1x1o", "1x0e+1x1o", "1x0e+1x1o"),
    "gate": lambda: enn.Gate("1x0e", [torch.tanh], "1x0e", [torch.sigmoid], "1x1o"),
    "norm": lambda: enn.BatchNorm("2x0e+1x1o"),
    "fc": lambda: enn.FullyConnectedNet([4, 8, 3], torch.relu),
}


def answer(name, module):
    """Call a module with what it takes, and return the sum's digest."""
    dtype = next(iter([*module.parameters(), *module.buffers(), torch.ones(1)])).dtype
    width = {"linear": 5, "full": 4, "gate": 5, "norm": 5, "fc": 4}[name]
    given = torch.linspace(-1, 1, 3 * width, dtype=dtype).reshape(3, width)
    return module(given, given) if name == "full" else module(given)


@check
def moves():
    """What modules answer after moves and copies."""
    found = []
    ways = {
        "to": lambda m: m.to("cpu"),
        "double": lambda m: m.double(),
        "deepcopy": copy.deepcopy,
        "cpu": lambda m: m.cpu(),
        "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    }
    for name, make in MAKERS.items():
        for way, call in ways.items():
            torch.manual_seed(5)
            try:
                module = call(make())
                found.append(f"{name} {way} {kind(module)} {digest(answer(name, module))}")
            except Exception as error:
                found.append(f"{name} {way} {type(error).__name__} {str(error)[:60]}")
    return "\n    ".join(found)


@check
def irreps():
    """Irreps, harmonics and rotations."""
    rotation = o3.rand_matrix(2).to(torch.float64).to("cpu")
    return (
        digest(rotation),
        digest(o3.spherical_harmonics([0, 1, 2], torch.ones(2, 3), True)),
        digest(o3.Irreps("1x1o").D_from_matrix(rotation.float())),
    )


@check
def learns():
    """A scripted layer learns, and is saved."""
    torch.manual_seed(5)
    layer = MAKERS["full"]()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        answer("full", layer).square().sum().backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    return [digest(p) for p in layer.parameters()], len(file.getvalue())


watch(1200, 400, counted=False)
