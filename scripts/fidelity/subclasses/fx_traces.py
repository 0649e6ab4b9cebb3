"""Graphs of torch.fx, make_fx, torch.export and functional transforms of functions with moves in them."""

import torch
from moments import check, digest, watch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx


class Net(nn.Module):
    """Moves in its forward, as users write it."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x):
        """Move, copy, and come back."""
        kept = torch.zeros(2, 4).copy_(self.layer(x)).to(torch.float64)
        return (kept.to(x.dtype) * self.scale).cpu().clone()


FUNCTIONS = (
    lambda x: x.to(torch.float64),
    lambda x: torch.ones(2).copy_(x),
    lambda x: x.cpu().double(),
    lambda x: torch.Tensor.to(x, torch.float16),
    lambda x: torch.nonzero(x).to(x.device),
    lambda x: x.item(),
    lambda x: x.masked_select(x > 0),
    lambda x: torch.stack([x.to("cpu"), x]),
)


def nodes(graph):
    """Return each node's kind, target and arguments."""
    return [
        f"{n.op} {getattr(n.target, '__name__', n.target)} {type(n.target).__name__} {n.args}"
        for n in graph.nodes
    ]


@check
def symbolic():
    """Symbolic traces of functions, and the code that they give."""
    found = []
    for function in FUNCTIONS:
        try:
            traced = fx.symbolic_trace(function)
            found.append(str((nodes(traced.graph), traced.code)))
        except (RuntimeError, TypeError) as error:
            found.append(f"{type(error).__name__} {error}")
    return "\n    ".join(found)


@check
def modules():
    """A module, its trace's weights, answers and its copy."""
    model = Net()
    traced = fx.symbolic_trace(model)
    return nodes(traced.graph), digest(traced(torch.ones(2, 4)) - model(torch.ones(2, 4))), traced.code


@check
def operators():
    """What make_fx and export see of it."""
    model = Net()
    seen = nodes(make_fx(model)(torch.ones(2, 4)).graph)
    return "\n    ".join([*seen, *nodes(torch.export.export(model, (torch.ones(2, 4),)).graph)])


@check
def transforms():
    """grad, vmap and functional_call through moves."""
    model = Net()
    answer = torch.func.vmap(torch.func.grad(lambda x: x.to(torch.float64).sum()))(torch.ones(2, 3))
    state = dict(model.named_parameters())
    return digest(answer), digest(torch.func.functional_call(model, state, torch.ones(2, 4)))


watch(1500, 300)
