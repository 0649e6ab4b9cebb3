"""torch.compile over moves of subclasses, whole graphs, with the graphs and counts of frames that Dynamo makes."""

import re

import torch
import torch._dynamo as dynamo
from moments import check, digest, watch


class Passing(torch.Tensor):
    """Hands everything on."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Hand on."""
        return super().__torch_function__(func, types, args, kwargs or {})


graphs = []
FUNCTIONS = {
    "to": lambda x: x.to(torch.float64) + 1,
    "cpu": lambda x: x.cpu() + 1,
    "nonzero": lambda x: x.nonzero() + 1,
    "copy_": lambda x: torch.zeros(3).copy_(x) + 1,
    "masked_select": lambda x: x.masked_select(x > 0),
    "item": lambda x: x.sum().item() + 1,
    "tolist": lambda x: x.int().tolist(),
    "bool": lambda x: bool(x.sum() > 0),
    "clone": lambda x: x.clone().double(),
}


def backend(module, inputs):
    """Note the graph and run it as it is."""
    graphs.append([re.sub(r" at 0x\w+", "", f"{n.op} {n.target}") for n in module.graph.nodes])
    return module


def compiled(make):
    """Compile each function for one kind of tensor."""
    found = []
    for name, function in FUNCTIONS.items():
        dynamo.reset()
        graphs.clear()
        try:
            with dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
                answer = torch.compile(function, fullgraph=True, backend=backend)(make())
            text = f"{type(answer).__name__} {digest(torch.as_tensor(answer).as_subclass(torch.Tensor))}"
        except Exception as error:
            text = f"{type(error).__name__} {str(error).splitlines()[0]}"
        found.append(f"{name} {text} {graphs}")
    return "\n    ".join(found)


@check
def plain():
    """Tensors as they are."""
    return compiled(lambda: torch.arange(3.0))


@check
def subclass():
    """A subclass that hands on."""
    return compiled(lambda: torch.arange(3.0).as_subclass(Passing))


@check
def training():
    """A compiled model and a compiled optimizer step: frames, graphs and weights."""
    dynamo.reset()
    dynamo.utils.counters.clear()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = torch.compile(model, backend="eager")
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        run(torch.ones(2, 4)).sum().backward()
        step()
    counts = {name: dict(dynamo.utils.counters[name]) for name in ("frames", "stats", "graph_break")}
    return counts, [digest(p) for p in model.parameters()]


watch(1200, 600, counted=False)
