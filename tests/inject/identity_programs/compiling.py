"""Prints what torch.compile makes of programs, at once or after short steps and a pause: one JSON object.

The word "pause" as an argument has some thousand short steps come first.
"""

import early  # isort: skip  # first: it imports torch

import collections
import importlib
import io
import json
import os
import sys
import warnings

import torch
import torch.overrides
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
dynamo = importlib.import_module("torch._dynamo")
utils = importlib.import_module("torch._dynamo.utils")
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class Backend:
    """Keeps the graphs that it gets."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(
            [
                [
                    node.op,
                    early.scrub(
                        node.target if node.op != "call_function" else getattr(node.target, "__name__", "")
                    ),
                    node.name,
                    str(node.args),
                    (node.stack_trace or "").replace(HERE, "HERE"),
                ]
                for node in graph.graph.nodes
            ]
        )
        return graph.forward


def compiled(function, *arguments, times=2, **options):
    """Compile and call it; return the graphs, what Dynamo counted, and what came out."""
    dynamo.reset()
    utils.counters.clear()
    getattr(utils, "clear_compilation_metrics", lambda: None)()
    backend = Backend()
    program = torch.compile(function, backend=backend, **options)
    results = [early.scrub(early.said(program, *arguments))[:400] for _ in range(times)]
    counters = {
        name: {early.scrub(key)[:300].replace(HERE, "HERE"): value for key, value in found.items()}
        for name, found in utils.counters.items()
        if name not in ("aot_autograd", "inductor")
    }
    metrics = []
    for each in getattr(utils, "get_compilation_metrics", lambda: [])():
        metrics.append(
            [
                early.scrub(getattr(each, name, None)).replace(HERE, "HERE")
                for name in "co_name co_filename co_firstlineno graph_op_count graph_node_count graph_input_count "
                "guard_count shape_env_guard_count accumulated_cache_size cache_size fail_reason "
                "non_compliant_ops restart_reasons".split()
            ]
        )
    return {"results": results, "graphs": backend.graphs, "counters": counters, "metrics": metrics}


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        return super().__torch_function__(func, kinds, args, kwargs or {})


class Overriding(torch.Tensor):
    def to(self, *arguments, **named):
        return super().to(*arguments, **named)

    def cpu(self):
        return super().cpu()


def sub(rows=2):
    return torch.ones(rows).as_subclass(Sub)


METHODS = {
    "to": lambda x: x.to(torch.float64) + 1,
    "cpu": lambda x: x.cpu() + 1,
    "copy_": lambda x: x.clone().copy_(x) + 1,
    "nonzero": lambda x: x.nonzero() + 1,
    "masked_select": lambda x: x.masked_select(x > 0) + 1,
    "item": lambda x: x.sum().item() + x,
    "tolist": lambda x: x + x.tolist()[0],
    "equal": lambda x: x + x.equal(x),
    "allclose": lambda x: x + x.allclose(x),
    "is_nonzero": lambda x: x + x.sum().is_nonzero(),
    "numpy": lambda x: x + x.numpy(),
    "bool": lambda x: x + 1 if x.sum() > 0 else x,
    "bool of it": lambda x: x + bool(x.sum()),
    "float": lambda x: x + float(x.sum()),
    "int": lambda x: x + int(x.sum()),
    "index": lambda x: x + [1, 2, 3][x.sum().long()],
    "repr": lambda x: x + len(repr(x)),
    "format": lambda x: x + len("%s {}".format(x)),
    "cuda": lambda x: x.cuda() + 1,
    "pin_memory": lambda x: x.pin_memory() + 1,
    "unbound to": lambda x: torch.Tensor.to(x, torch.float64) + 1,
    "unbound item": lambda x: torch.Tensor.item(x.sum()) + x,
    "getattr": lambda x: getattr(x, "to")(torch.float64) + 1,
    "held": lambda x, to=torch.Tensor.to: to(x, torch.float64) + 1,
    "method is": lambda x: x + (1 if torch.Tensor.to is torch.Tensor.to else 2),
    "hasattr": lambda x: x + (1 if hasattr(torch.Tensor, "to") and hasattr(x, "item") else 2),
    "function nonzero": lambda x: torch.nonzero(x) + 1,
}


@scenario
def methods_of_a_subclass():
    return {
        name: compiled(function, sub(), fullgraph=True, times=1)
        for name, function in list(METHODS.items())[:11] + list(METHODS.items())[20:24]
    }


@scenario
def methods_of_tensors():
    return {
        name: compiled(function, torch.ones(2), fullgraph=True, times=1) for name, function in METHODS.items()
    }


@scenario
def methods_of_tensors_that_break_graphs():
    names = (
        "item tolist equal allclose is_nonzero numpy bool float int repr format nonzero masked_select".split()
    )
    return {name: compiled(METHODS[name], torch.ones(2)) for name in names}


@scenario
def methods_whose_values_are_captured():
    config = dynamo.config
    found = {}
    for name in ("capture_scalar_outputs", "capture_dynamic_output_shape_ops"):
        if not hasattr(config, name):
            return {"lacks": name}
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for name in "item tolist nonzero masked_select float int bool".split():
            found[name] = compiled(METHODS[name], torch.ones(2), times=1)
    return found


@scenario
def a_subclass_that_overrides_methods():
    x = torch.ones(2).as_subclass(Overriding)
    return [compiled(METHODS[name], x, fullgraph=True, times=1) for name in ("to", "cpu")] + [
        compiled(METHODS["to"], x)
    ]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 4), nn.Sequential(nn.ReLU(), nn.Dropout(0.0), nn.Linear(4, 1))

    def forward(self, x):
        x = self.first(x.to(torch.float32))
        if x.sum().item() > 1e9:
            x = x * 2
        return self.second(x).cpu()


@scenario
def a_model():
    return [
        compiled(
            nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)), torch.ones(3, 2), fullgraph=True
        ),
        compiled(Model(), torch.ones(3, 2)),
        compiled(nn.Sequential(Model(), nn.Tanh()), torch.ones(3, 2)),
        compiled(Model().forward, torch.ones(3, 2)),
    ]


@scenario
def a_model_that_is_compiled_in_place():
    if not hasattr(nn.Module, "compile"):
        return {"lacks": "nn.Module.compile"}
    dynamo.reset()
    utils.counters.clear()
    backend, model = Backend(), Model()
    model.compile(backend=backend)
    hooked = []
    model.register_forward_hook(lambda *_: hooked.append("model"))
    model.first.register_forward_hook(lambda *_: hooked.append("first"))
    for rows in (3, 3, 4, 5):
        model(torch.ones(rows, 2))
    return [backend.graphs, json.loads(json.dumps(utils.counters["stats"])), hooked]


@scenario
def what_dynamo_explains():
    if not hasattr(dynamo, "explain"):
        return {"lacks": "explain"}

    def explain(function, *arguments):
        dynamo.reset()
        try:
            found = dynamo.explain(function)(*arguments)
        except TypeError:
            return {"lacks": "explain(f)(*arguments)"}
        if not hasattr(found, "break_reasons"):
            return {"lacks": "ExplainOutput"}
        return [
            found.graph_count,
            found.graph_break_count,
            found.op_count,
            [early.scrub(each.reason).replace(HERE, "HERE") for each in found.break_reasons],
            [
                [early.scrub(frame).replace(HERE, "HERE") for frame in each.user_stack]
                for each in found.break_reasons
            ],
            len(found.out_guards or []),
        ]

    return [
        early.said(explain, Model(), torch.ones(3, 2)),
        early.said(explain, whole_step(), torch.ones(3, 2)),
        early.said(explain, METHODS["item"], torch.ones(2)),
        early.said(explain, METHODS["equal"], torch.ones(2)),
    ]


def whole_step(kind=torch.optim.SGD, **options):
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = kind(model.parameters(), 0.1, **options)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@scenario
def a_whole_step():
    step = whole_step()
    found = [compiled(step, torch.ones(3, 2), times=3)]
    step = whole_step(torch.optim.Adam)
    step(torch.ones(3, 2))
    return found + [compiled(step, torch.ones(3, 2), times=3)]


@scenario
def the_step_of_an_optimizer():
    found = []
    for kind, options in (
        (torch.optim.SGD, {}),
        (torch.optim.Adam, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
    ):
        model = nn.Linear(2, 1)
        optimizer = kind(model.parameters(), 0.1, **options)
        model(torch.ones(3, 2)).sum().backward()
        found.append(compiled(optimizer.step, times=3))
        found.append(compiled(lambda: optimizer.step(), times=3))
    return found


@scenario
def a_scheduler_and_clipping():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.ones(3, 2)).sum().backward()

    def clip():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)

    def schedule():
        optimizer.step()
        scheduler.step()

    def clear():
        optimizer.zero_grad()
        model.zero_grad()

    return [compiled(each) for each in (clip, schedule, clear, scheduler.step, optimizer.zero_grad)]


@scenario
def other_functions_within_a_graph():
    model = nn.Linear(2, 1)

    def saves(x):
        torch.save(x, io.BytesIO())
        return x + 1

    def loads(x):
        return x + 1, list(torch.utils.data.DataLoader([1, 2]))

    def moves(x):
        model.to(torch.float32)
        model.cpu()
        return model(x)

    def threads(x):
        torch.set_num_threads(1)
        torch.set_float32_matmul_precision("highest")
        return x + 1

    def backward(x):
        loss = model(x).sum()
        torch.autograd.backward(loss)
        return loss

    def gradient(x):
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0].norm()

    def anomaly(x):
        with torch.autograd.set_detect_anomaly(False):
            return model(x)

    def synchronizes(x):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return x + 1

    def reduces(x):
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(x)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            each.__name__: compiled(each, torch.ones(3, 2))
            for each in (saves, loads, moves, threads, backward, gradient, anomaly, synchronizes, reduces)
        }


@scenario
def compiling_again():
    def scaled(x, by):
        return x * by + x.shape[0]

    dynamo.reset()
    utils.counters.clear()
    backend = Backend()
    program = torch.compile(scaled, backend=backend)
    for rows, by in ((2, 1), (3, 1), (4, 2), (5, 3), (6, 4), (7, 2.5), (8, 3.5)):
        program(torch.ones(rows), by)
    counts = [len(backend.graphs), dict(utils.counters["stats"])]
    training.steps(50)
    program(torch.ones(9), 7)
    return counts + [len(backend.graphs), dict(utils.counters["stats"])]


@scenario
def a_graph_that_stays_valid_through_steps():
    dynamo.reset()
    backend = Backend()
    model = Model()
    program = torch.compile(model, backend=backend)
    method = torch.compile(METHODS["held"], backend=backend)
    counts = []
    for _ in range(6):
        program(torch.ones(3, 2))
        method(torch.ones(2))
        counts.append(len(backend.graphs))
        training.steps(400)
    return counts


@scenario
def an_export():
    if not hasattr(torch, "export") or not hasattr(torch.export, "export"):
        return {"lacks": "torch.export.export"}
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    class Moving(nn.Module):
        def forward(self, x):
            return torch.ones(2, dtype=torch.float64).copy_(x.to(torch.float64).cpu()) + x.sum().item()

    def export(model, x):
        return early.scrub(torch.export.export(model, (x,)).graph_module.code)

    return [early.said(export, model, torch.ones(3, 2)), early.said(export, Moving(), torch.ones(2))]


@scenario
def the_default_ways_of_autograd():
    dynamo.reset()
    utils.counters.clear()
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    program = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = program(torch.ones(3, 2)).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() > -1e9)
    return [
        losses,
        {
            name: dict(found)
            for name, found in utils.counters.items()
            if name in ("frames", "stats", "graph_break", "aot_autograd")
        },
    ]


@scenario
def a_function_mode_around_a_compilation():
    from torch.overrides import TorchFunctionMode, resolve_name

    class Recording(TorchFunctionMode):
        seen = []

        def __torch_function__(self, func, kinds, args=(), kwargs=None):
            Recording.seen.append(early.said(resolve_name, func))
            return func(*args, **(kwargs or {}))

    Recording.seen = []
    dynamo.reset()
    program = torch.compile(METHODS["item"], backend="eager")
    with Recording():
        results = [early.scrub(early.said(program, torch.ones(2))) for _ in range(3)]
    return [results, Recording.seen]


@scenario
def what_is_disabled_stays_so():
    @dynamo.disable
    def hidden(x):
        return x.to(torch.float64).item()

    def program(x):
        return x + hidden(x.sum())

    return compiled(program, torch.ones(2))


@scenario
def errors_within_compiled_code():
    """The class in front of ``item()`` depends on how Dynamo calls it, which a descriptor cannot know."""
    import traceback

    def reported(function, *arguments):
        dynamo.reset()
        try:
            torch.compile(function, backend="eager")(*arguments)
        except BaseException as error:
            return [
                "%s %s %s" % (frame.filename.replace(HERE, "HERE"), frame.name, frame.lineno)
                for frame in traceback.extract_tb(error.__traceback__)
            ] + [type(error).__name__, early.scrub(error).replace(HERE, "HERE").replace("TensorBase.item()", "Tensor.item()")]
        return "no error"

    def fails(x):
        y = x.to(torch.float64)
        raise KeyError(y.item())

    class Failing(nn.Module):
        def forward(self, x):
            return fails(x)

    return [
        reported(fails, torch.ones(1)), reported(Failing(), torch.ones(1)), reported(nn.Sequential(Failing()), torch.ones(1)),
        reported(METHODS["cuda"], torch.ones(1)), reported(lambda x: x.to("nowhere"), torch.ones(1)),
        reported(lambda x: x.item(3), torch.ones(1)), reported(lambda x: x.item(), torch.ones(2)),
        reported(lambda x: torch.Tensor.to(self=x), torch.ones(2)), reported(nn.Linear(2, 1), torch.ones(3)),
    ]  # fmt: skip


def main():
    global training
    states = collections.OrderedDict()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training = early.Training()
        if "pause" in sys.argv[1:]:
            training.steps(3000)
        for name, function in SCENARIOS.items():
            states[name] = early.outcome(function)
    states["version"], states["steps"] = sys.version_info[:3], training.many
    print(json.dumps(states))


if __name__ == "__main__":
    main()
