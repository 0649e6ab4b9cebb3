"""geoopt's manifold tensors and pypose's Lie tensors, which go by functions, too: moved, trained."""

import copy
import pickle
import warnings

import torch
from moments import check, digest, kind, watch

warnings.filterwarnings("ignore")
import geoopt  # noqa: E402
import pypose as pp  # noqa: E402

MAKERS = {
    "ball": lambda: geoopt.ManifoldTensor(torch.full((2, 3), 0.1), manifold=geoopt.PoincareBall()),
    "sphere": lambda: geoopt.ManifoldParameter(torch.eye(3), manifold=geoopt.Sphere()),
    "SO3": lambda: pp.so3(torch.full((2, 3), 0.1)).Exp(),
    "se3": lambda: pp.se3(torch.full((2, 6), 0.1)),
    "parameter": lambda: pp.Parameter(pp.SO3(torch.tensor([[0.0, 0.0, 0.0, 1.0]]))),
}
CALLS = {
    "to": lambda t: t.to(torch.float64),
    "to cpu": lambda t: t.to("cpu"),
    "cpu": lambda t: t.cpu(),
    "double": lambda t: t.double(),
    "clone": lambda t: t.clone(),
    "detach": lambda t: t.detach(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "add": lambda t: t + t,
    "index": lambda t: t[0],
    "stack": lambda t: torch.stack([t, t]),
    "copy_": lambda t: t.detach().clone().copy_(t),
    "numpy": lambda t: t.detach().numpy(),
    "tolist": lambda t: t.detach().tolist(),
    "item": lambda t: t.sum().item(),
    "nonzero": lambda t: t.nonzero(),
    "half": lambda t: t.half(),
    "cat": lambda t: torch.cat([t, t]),
    "masked": lambda t: t.masked_select(t > 0),
    "bool": lambda t: bool((t > 0).any()),
    "log": lambda t: t.Log(),
    "inverse": lambda t: t.Inv(),
    "matmul": lambda t: t @ torch.ones(3),
    "copy": lambda t: t.to("cpu", copy=True),
}


def described(value):
    """Say the class, what it says of its kind, and a digest."""
    if isinstance(value, torch.Tensor):
        own = getattr(value, "manifold", getattr(value, "ltype", ""))
        return f"{kind(value)} {type(own).__name__} {digest(value.detach().as_subclass(torch.Tensor))}"
    return f"{kind(value)} {str(value)[:300]}"


@check
def calls():
    """What each call gives for each class."""
    found = []
    for name, make in MAKERS.items():
        for call_name, call in CALLS.items():
            try:
                found.append(f"{name} {call_name} {described(call(make()))}")
            except Exception as error:
                found.append(
                    f"{name} {call_name} {type(error).__name__} {(str(error).splitlines() or [''])[0][:70]}"
                )
    return "\n    ".join(found)


@check
def learns():
    """Riemannian optimizers, and Levenberg-Marquardt over a Lie group."""
    point = geoopt.ManifoldParameter(torch.full((3,), 0.2), manifold=geoopt.PoincareBall())
    optimizer = geoopt.optim.RiemannianAdam([point], lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        point.manifold.dist(point, torch.zeros(3)).square().backward()
        optimizer.step()

    class Inverse(torch.nn.Module):
        """Looks for the inverse of a pose."""

        def __init__(self):
            super().__init__()
            self.pose = pp.Parameter(pp.se3(torch.full((2, 6), 0.1)))

        def forward(self, given):
            """Return what is left."""
            return (self.pose.Exp() @ given).Log().tensor()

    net = Inverse().to("cpu")
    search = pp.optim.LM(net)
    losses = [search.step(pp.se3(torch.full((2, 6), 0.3)).Exp()).item() < 9 for _ in range(3)]
    return described(point), losses, described(net.pose)


watch(1500, 300, counted=False)
