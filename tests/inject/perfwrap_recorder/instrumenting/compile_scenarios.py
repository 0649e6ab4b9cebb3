"""Programs that torch.compile and its kin see; run bare or recorded, each says what was captured.

Started as ``python compile_scenarios.py RUN_FOLDER WHEN INJECT``: WHEN is ``bare``, ``before`` (probes before
anything is compiled) or ``after`` (probes after a first compilation), INJECT the folder with the recorder.
Prints one JSON object: scenario -> what it saw.
"""

from __future__ import annotations

import copy
import json
import pickle
import sys
import warnings
from importlib import import_module

import torch
from torch import nn

INJECT = sys.argv[3]


class Net(nn.Module):
    def __init__(self, training_only=True):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.second(self.first(x))


class Called(Net):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) * 2


class Logged(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func.__name__, func is getattr(torch.Tensor, func.__name__, None)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Graphs:
    """A backend that keeps what it is given."""

    def __init__(self):
        self.seen = []

    def __call__(self, module, inputs):
        self.seen.append([(node.op, str(node.target)) for node in module.graph.nodes])
        return module.forward


def captured(run, *calls, **options):
    """Compile ``run``, call it with each argument tuple and say what Dynamo made of it."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    graphs = Graphs()
    compiled = torch.compile(run, backend=graphs, **options)
    results = []
    for arguments in calls:
        try:
            results.append(repr(compiled(*arguments)))
        except Exception as error:  # noqa: BLE001 - what is raised is compared
            results.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    counters = {key: dict(value) for key, value in torch._dynamo.utils.counters.items()}
    return {"graphs": graphs.seen, "counters": counters, "results": results}


def x(rows=3):
    return torch.arange(rows * 4.0).reshape(rows, 4)


def model():
    return captured(Net(), (x(),), (x(),))


def model_fullgraph():
    return captured(Net(), (x(),), fullgraph=True)


def model_that_overrides_call():
    return captured(Called(), (x(),))


def compile_method():
    torch._dynamo.reset()
    graphs = Graphs()
    net = Net()
    net.compile(backend=graphs)
    return {"result": repr(net(x())), "graphs": graphs.seen, "state": sorted(net.__getstate__())}


def dynamic_shapes():
    return captured(Net(), *((x(rows),) for rows in (3, 3, 5, 7, 9)))


def marked_dynamic():
    return captured(Net(), (x(4),), (x(6),), dynamic=True)


def reads(read):
    def run(value):
        y = value.sum() * 2
        got = read(y)
        return value + 1, got

    return captured(run, (x(),), (x(),), (x(),))


def reads_fullgraph():
    def run(value):
        return value * value.sum().item()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return captured(run, (x(),), fullgraph=True)


def item_without_capture():
    return captured(lambda value: value * value.sum().item(), (x(),), fullgraph=True)


def nonzero_captured():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        return captured(lambda value: value.nonzero() + 1, (x(),), fullgraph=True)


def moves(move):
    def run(value):
        y = value * 2
        got = move(y)
        return value + 1, got

    return captured(run, (x(),), (x(),))


def module_moved_inside():
    net = Net()

    def run(value):
        return net.to("cpu").to(torch.float64)(value.to(torch.float64))

    return captured(run, (x(),), (x(),))


def moved_fullgraph():
    def run(value):
        target = torch.empty_like(value)
        target.copy_(value.to(torch.float64))
        return target.cpu() + value.to("cpu")

    return captured(run, (x(),), fullgraph=True)


class Shifted(torch.Tensor):
    def to(self, *args, **kwargs):
        return super().to(*args, **kwargs) + 1

    def copy_(self, *args):
        return super().copy_(*args)


def subclass_that_overrides():
    def run(value):
        return (value * 2).to(torch.float64), torch.empty_like(value).copy_(value)

    return captured(run, (x().as_subclass(Shifted),))


def methods_as_functions():
    def run(value):
        return [torch.Tensor.cpu(value), *map(torch.Tensor.double, [torch.Tensor.to(value, torch.float16)])]

    return captured(run, (x(),), fullgraph=True)


def settings_inside(change):
    def run(value):
        y = value + 1
        change()
        return y * 2

    try:
        return captured(run, (x(),), (x(),))
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(False)
        torch.set_anomaly_enabled(False)


def anomaly_inside():
    def run(value):
        with torch.autograd.set_detect_anomaly(True):
            y = value + 1
        with torch.autograd.detect_anomaly():
            return y * 2

    return captured(run, (x(),), (x(),))


def profiled_inside():
    def run(value):
        with torch.profiler.profile(), torch.autograd.profiler.profile():
            return value + 1

    return captured(run, (x(),), (x(),))


def branches():
    def run(value):
        if value.sum() > 0:
            return value + 1
        return value - 1

    return captured(run, (x(),), (-x(),))


def whole_step():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(value):
        optimizer.zero_grad()
        loss = net(value).sum()
        loss.backward()
        optimizer.step()
        return loss

    return captured(step, (x(),), (x(),))


def whole_step_with_clipping_and_scheduler():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def step(value):
        optimizer.zero_grad(set_to_none=False)
        net(value).sum().backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return norm

    return captured(step, (x(),), (x(),))


def penalised():
    """Return a function with a gradient within: a gradient penalty."""
    net = Net()

    def step(value):
        value = value.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(net(value).sum(), value, create_graph=True)
        return (slope.norm() - 1) ** 2

    return step


def gradient_within():
    return captured(penalised(), (x(),), (x(),), (x(5),))


def gradient_within_fullgraph():
    return captured(penalised(), (x(),), fullgraph=True)


def gradient_transformed():
    net = Net()
    return captured(torch.func.grad(lambda value: net(value).sum()), (x(),), (x(),))


def clipping_fullgraph():
    net = Net()
    net(x()).sum().backward()
    return captured(lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0), (), (), fullgraph=True)


def scheduler_step():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.1))
    net(x()).sum().backward()
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)

    def step():
        optimizer.step()
        scheduler.step()

    return {**captured(step, (), (), ()), "rate": repr(optimizer.param_groups[0]["lr"])}


def scaled_step():
    scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else None
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(value):
        scaler.scale(net(value).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return value

    return captured(step, (x(),), (x(),)) if scaler else None


def alone():
    """Return torch.distributed, of which this process is the only member; None where there is none."""
    import torch.distributed as distributed

    if not distributed.is_available():
        return None
    if not distributed.is_initialized():
        store = distributed.HashStore()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return distributed


def collectives_inside():
    distributed = alone()

    def run(value):
        value = value + 1
        distributed.all_reduce(value)
        parts = torch.empty(value.shape[0], 4)
        distributed.all_gather_into_tensor(parts, value)
        return parts * 2

    return captured(run, (x(),), (x(),)) if distributed else None


def collectives_fullgraph():
    distributed = alone()

    def run(value):
        value = value + 1
        distributed.all_reduce(value)
        return value * 2

    return captured(run, (x(),), fullgraph=True) if distributed else None


def collectives_that_break():
    distributed = alone()

    def run(value):
        value = value + 1
        distributed.broadcast(value, 0)
        distributed.barrier()
        return value * 2

    return captured(run, (x(),), (x(),)) if distributed else None


def data_parallel():
    distributed = alone()
    net = nn.parallel.DistributedDataParallel(Net()) if distributed else None

    def step(value):
        with net.no_sync():
            return net(value).sum()

    return captured(step, (x(),), (x(),)) if distributed else None


def emptying_the_cache():
    def run(value):
        value = value + 1
        torch.cuda.empty_cache()
        return value * 2

    return captured(run, (x(),), (x(),))


def optimizer_step(kind=torch.optim.Adam):
    net = Net()
    optimizer = kind(net.parameters(), lr=0.1)
    net(x()).sum().backward()
    return captured(optimizer.step, (), ())


def optimizer_step_fullgraph():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(x()).sum().backward()
    return captured(optimizer.step, (), fullgraph=True)


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    net = Net()

    def run(value):
        return checkpoint(net, value, use_reentrant=False).sum()

    value = x().requires_grad_()
    return captured(run, (value,))


def checkpoint_eager():
    from torch.utils.checkpoint import checkpoint

    net = Net()
    value = x().requires_grad_()
    checkpoint(net, value, use_reentrant=False).sum().backward()
    return repr(value.grad)


def module_with_hooks():
    net = Net()
    net.first.register_forward_hook(lambda module, inputs, output: output * 2)
    return captured(net, (x(),))


def saving_inside():
    import io

    def run(value):
        torch.save(value, io.BytesIO())
        return value + 1

    return captured(run, (x(),))


def loader_inside():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x()), batch_size=2)

    def run(value):
        for (batch,) in loader:
            value = value + batch.sum()
        return value

    return captured(run, (x(),))


def batches_made_inside():
    data = [(value, value.sum()) for value in x()]

    def collate(samples):
        return torch.stack([value for value, _ in samples]) * 2

    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher(data, True, collate, False)

    def run(value):
        return value + fetcher.fetch([0, 1]).sum()

    return captured(run, (x(),), (x(),)), fetcher.collate_fn is collate


def compiled_collate():
    graphs = Graphs()
    collate = torch.compile(lambda samples: torch.stack(samples) * 2, backend=graphs)
    loader = torch.utils.data.DataLoader(list(x(4)), batch_size=2, collate_fn=collate)
    return repr(list(loader)), graphs.seen


def functorch():
    from torch.func import grad, vmap

    per_sample = vmap(grad(lambda w, v: (w * v).sum()), in_dims=(None, 0))
    eager = repr(per_sample(torch.ones(4), x()))
    return eager, captured(lambda w, v: per_sample(w, v) + 1, (torch.ones(4), x()))


def vmap_of_item():
    from torch.func import vmap

    try:
        return repr(vmap(lambda v: v.sum().item())(x()))
    except Exception as error:  # noqa: BLE001 - what is raised is compared
        return f"{type(error).__name__}: {error}"


def exported(strict=True):
    program = torch.export.export(Net(), (x(),), strict=strict)
    return str(program.graph)


def scripted():
    def run(value):
        # type: (Tensor) -> float
        return value.sum().item() + float(value.max())

    from torch import Tensor  # noqa: F401

    return str(torch.jit.script(run).graph), str(torch.jit.script(Net()).code)


def traced():
    return str(torch.jit.trace(Net(), x()).graph)


def symbolically_traced():
    return str(torch.fx.symbolic_trace(Net()).graph)


def make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx as make

    return str(make(lambda value: value * value.sum(), tracing_mode="symbolic")(x()).graph)


def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    seen = []
    with FakeTensorMode():
        value = torch.ones(3).sum()
        for read in (torch.Tensor.item, float, bool, torch.Tensor.tolist):
            try:
                seen.append(repr(read(value)))
            except Exception as error:  # noqa: BLE001 - what is raised is compared
                seen.append(type(error).__name__)
        seen.append(repr(value.cpu()))
        seen += [repr(value.to("meta")), repr(torch.ones(3).copy_(value))]
    return seen


def subclass_sees():
    Logged.calls.clear()
    value = torch.ones(()).as_subclass(Logged)
    results = [value.item(), float(value), bool(value), int(value), value.tolist(), repr(value)]
    results += [
        value.to(torch.float64),
        value.cpu(),
        value.to("meta").shape,
        value.equal(value),
        complex(value),
    ]
    return repr(results), Logged.calls


def mode_sees():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    net, value = Net(), torch.ones(())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x()), batch_size=2)
    with Mode():
        value.item(), float(value), bool(value)
        value.to("meta"), value.to(torch.float64), value.cpu(), value.copy_(value), value.equal(value)
        net.to(torch.float32)
        net(x()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        [len(batch) for batch in loader]
    return seen


def pickled():
    things = [
        torch.save,
        torch.load,
        torch.autograd.backward,
        torch.autograd.grad,
        nn.Module.zero_grad,
        nn.Module.__call__,
    ]
    things += [nn.Module.to, nn.Module.cuda, torch.Tensor.to, torch.Tensor.copy_, torch.Tensor.cpu]
    things += [
        torch.set_float32_matmul_precision,
        torch.autograd.set_detect_anomaly,
        torch.profiler.profile.start,
    ]
    things += [torch.optim.Optimizer.zero_grad, torch.utils.data.DataLoader._get_iterator]
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader([1, 2, 3])
    list(loader)
    sizes = [len(pickle.dumps(thing)) for thing in (net, optimizer, loader, x())]
    back = [pickle.loads(pickle.dumps(thing)) is thing for thing in things]
    return (
        sizes,
        back,
        sorted(vars(loader)),
        sorted(vars(copy.deepcopy(net))),
        sorted(vars(copy.deepcopy(optimizer))),
    )


def introspected():
    import inspect

    loader = torch.utils.data.DataLoader
    module = nn.Module
    callables = (loader, loader.__init__, torch.save, torch.load, module.zero_grad, torch.autograd.backward)
    callables += (
        torch.autograd.grad,
        module.to,
        module.cuda,
        torch.cuda.synchronize,
        torch.cuda.Event.synchronize,
    )
    callables += (torch.autograd.set_detect_anomaly, torch.profiler.profile.start)
    signatures = [str(inspect.signature(thing)) for thing in callables]
    sources = [
        inspect.getsource(thing) for thing in (*callables[1:], module.__call__, torch.Tensor.__format__)
    ]
    names = [(thing.__name__, thing.__qualname__, thing.__module__, thing.__doc__) for thing in callables]
    return signatures, sources, names, inspect.getfullargspec(loader.__init__).args


def iterated():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x(6)), batch_size=2)
    iterator = iter(loader)
    first = [type(iterator).__name__, len(iterator), iterator._num_yielded, sorted(vars(iterator))]
    return first, repr(next(iterator)), iterator._num_yielded


READS = {
    "item": lambda y: y.item(),
    "tolist": lambda y: y.tolist(),
    "cpu": lambda y: y.cpu(),
    "numpy": lambda y: float(y.numpy()),
    "bool": bool,
    "float": float,
    "int": int,
    "index": lambda y: [5, 6, 7][y.to(torch.int64) % 3],
    "nonzero": lambda y: y.nonzero(),
    "complex": complex,
    "equal": lambda y: y.equal(y),
    "allclose": lambda y: y.allclose(y),
    "is_nonzero": lambda y: y.is_nonzero(),
    "masked_select": lambda y: y.masked_select(y > 0),
    "torch.equal": lambda y: torch.equal(y, y),
    "torch.nonzero": lambda y: torch.nonzero(y),
    "repr": repr,
    "format": lambda y: f"{y:.1f}",
}

MOVES = {
    "to": lambda y: y.to("cpu"),
    "to a type": lambda y: y.to(torch.float64),
    "to another": lambda y: y.to("meta").shape,
    "to like": lambda y: y.to(torch.ones(1, dtype=torch.float64)),
    "cpu": lambda y: y.cpu(),
    "cuda": lambda y: y.cuda(),
    "copy_": lambda y: torch.empty_like(y).copy_(y),
    "pin_memory": lambda y: y.pin_memory(),
    "a function": lambda y: torch.Tensor.to(y, torch.float64),
}

SETTINGS = {
    "precision": lambda: torch.set_float32_matmul_precision("high"),
    "threads": lambda: torch.set_num_threads(1),
    "determinism": lambda: torch.use_deterministic_algorithms(True),
    "determinism for debugging": lambda: torch.set_deterministic_debug_mode("warn"),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "synchronize": lambda: torch.cuda.synchronize(),
}

SCENARIOS = {
    **{f"moved by {name}": (lambda move=move: moves(move)) for name, move in MOVES.items()},
    **{f"set {name}": (lambda change=change: settings_inside(change)) for name, change in SETTINGS.items()},
    **{f"read by {name}": (lambda read=read: reads(read)) for name, read in READS.items()},
    **{
        f.__name__: f
        for f in (
            model, model_fullgraph, model_that_overrides_call, compile_method, dynamic_shapes, marked_dynamic,
            reads_fullgraph, item_without_capture, nonzero_captured, branches, whole_step, optimizer_step,
            whole_step_with_clipping_and_scheduler, clipping_fullgraph, gradient_within,
            gradient_within_fullgraph, gradient_transformed,
            scheduler_step, scaled_step,
            collectives_inside, collectives_fullgraph, collectives_that_break, data_parallel,
            emptying_the_cache,
            optimizer_step_fullgraph, checkpointed, checkpoint_eager, module_with_hooks, saving_inside,
            loader_inside, batches_made_inside, compiled_collate, functorch, vmap_of_item, exported, scripted, traced,
            symbolically_traced, make_fx, fake_tensors, subclass_sees, mode_sees, pickled, introspected, iterated,
            module_moved_inside,
            moved_fullgraph, subclass_that_overrides, methods_as_functions, anomaly_inside, profiled_inside,
        )
    },
    "exported loosely": lambda: exported(strict=False),
    "adamw_step": lambda: optimizer_step(torch.optim.AdamW),
}  # fmt: skip


def install():
    """Record from now on."""
    sys.path.insert(0, INJECT)
    from perfwrap_recorder import probes
    from perfwrap_recorder.journal import journal, lifecycle

    class Settings:
        run_dir, host, budget_bytes, nvtx = sys.argv[1], "host", 8 << 20, False

    # What looks now and then does so at the end of each step, and so within each compiled region, too.
    journal.OFTEN_INTERVAL_NS = journal.CLOCK_INTERVAL_NS = 1
    lifecycle.open_current(Settings)
    for probe in [import_module("perfwrap_recorder.probes." + name) for name in probes.PROBES]:
        probe.install(torch)


def tell_of_modules():
    """Do what the recorder does when modules are imported that its probes wait for."""
    from perfwrap_recorder import probes

    for probe in [import_module("perfwrap_recorder.probes." + name) for name in probes.PROBES]:
        for awaited, function in getattr(probe, "MODULES", {}).items():
            if awaited in sys.modules:
                function(sys.modules[awaited])


def main():
    warnings.simplefilter("ignore")
    when = sys.argv[2]
    if when == "before":
        install()
    import_module("torch._dynamo.convert_frame")  # torch 2.0 does not import Dynamo by itself
    if when == "after":
        captured(Net(), (x(),))
        install()
    if when != "bare":
        tell_of_modules()
    seen = {}
    for name, scenario in SCENARIOS.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        try:
            seen[name] = scenario()
        except Exception as error:  # noqa: BLE001 - what is raised is compared
            seen[name] = f"raised {type(error).__name__}: {str(error).splitlines()[:1]}"
    print(json.dumps(seen, default=str))


if __name__ == "__main__":
    main()
