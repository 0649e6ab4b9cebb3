"""Prints what programs see that do unusual things with torch, while it records and in a pause: one JSON object."""

import early  # isort: skip  # first: it imports torch

import copy
import functools
import gc
import importlib
import io
import json
import os
import pickle
import random
import sys
import tempfile
import threading
import traceback
import types
import warnings
import weakref

import torch
import torch.fx
import torch.overrides
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

TEMPORARY = os.path.join(tempfile.gettempdir(), "tmp")
"""The beginning of the folders that some versions of torch make and add to sys.path, with another name each time."""

HERE = os.path.dirname(os.path.abspath(__file__))
BEHAVIOURS = {}
FIRST = {}
"""What each name of a method of tensors' stood for at the start."""


def behaviour(function):
    BEHAVIOURS[function.__name__] = function
    return function


def place(name):
    return name.replace(HERE, "HERE")


def frames(skip=1):
    """Return the caller's stack: file and function of each frame, from the innermost."""
    found, frame = [], sys._getframe(skip)
    while frame is not None:
        found.append("%s %s" % (place(frame.f_code.co_filename), frame.f_code.co_name))
        frame = frame.f_back
    return found


def reported(function, *arguments, **named):
    """Return the traceback that a call gives."""
    try:
        function(*arguments, **named)
    except BaseException as error:
        return [
            "%s %s %s" % (place(frame.filename), frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.__traceback__)
        ] + [type(error).__name__, early.scrub(error).replace(HERE, "HERE")]
    return "no error"


def warned(function, *arguments, action="always", **named):
    """Return the warnings that a call gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        result = early.said(function, *arguments, **named)
    return [
        [each.category.__name__, early.scrub(each.message)[:150], place(each.filename), each.lineno]
        for each in caught
    ] + [early.scrub(result)[:300]]


METHODS = """item tolist numpy nonzero equal allclose is_nonzero masked_select __bool__ __float__ __int__ __complex__
__index__ __repr__ __format__ to cuda cpu copy_ pin_memory""".split()


def use(x, one):
    """Call all methods that are watched; ``one`` is a tensor of the same class with one element."""
    whole = one.long()
    results = [
        one.item(), x.tolist(), x.detach().numpy(), x.nonzero(), x.equal(x), x.allclose(x), one.is_nonzero(),
        x.masked_select(x > 0), bool(one), float(one), int(one), complex(one), whole.__index__(), [7, 8][whole],
        repr(x), str(x), early.said(format, one[0], ".2f"), "{}".format(one), x.to(torch.float64), x.to("cpu"), x.to(x), x.cpu(),
        x.clone().copy_(x), x.to(torch.float32, copy=True), x.to(device="cpu", dtype=torch.float16),
        torch.nonzero(x), torch.equal(x, x), torch.allclose(x, x), torch.Tensor.to(x, torch.float64),
        torch.Tensor.item(one), torch.Tensor.tolist(x), x == x, x.to("meta").shape, x.type(torch.float64), x.double(),
    ]  # fmt: skip
    return [early.scrub(each) for each in results] + [
        early.said(x.cuda),
        early.said(lambda: str(x.pin_memory())),
    ]


def stood(func):
    """Say how a function that a handler is given compares with what stands in its place."""
    name = getattr(func, "__name__", "none")
    now = getattr(torch.Tensor, name, None)
    return [
        early.said(resolve_name, func),
        name,
        type(func).__name__,
        func is now,
        func == now,
        func is FIRST.get(name),
        func in torch.overrides.get_testing_overrides(),
        torch.overrides.is_tensor_method_or_property(func),
    ]


class Recording(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.seen.append(stood(func) + [len(args), sorted(kwargs), [kind.__name__ for kind in kinds]])
        return func(*args, **kwargs)


class Depths(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        self.seen.append([getattr(func, "__name__", "none"), frames()])
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen, self.depths = [], []

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        self.seen.append(str(func))
        self.depths.append(frames())
        return func(*args, **(kwargs or {}))


class Sub(torch.Tensor):
    """Records what it is asked."""

    seen = []
    note = staticmethod(stood)

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        if Sub.seen is not None:
            Sub.seen.append(Sub.note(func))
        return super().__torch_function__(func, kinds, args, kwargs or {})


def one_step(model=None):
    """Train one step with everything that is watched."""
    model = model or nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        optimizer.zero_grad()
        model.zero_grad()
        loss = model(torch.ones(3, 2)).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        loss.item()
    model.to("cpu")
    model.to(torch.float64)
    model.cpu()
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    torch.load(buffer)
    return model


@behaviour
def a_function_mode_sees_the_methods():
    with Recording() as mode:
        results = use(torch.ones(2, 2), torch.ones(1))
    return [mode.seen, results]


@behaviour
def a_function_mode_sees_a_step():
    with Recording() as mode:
        one_step()
    return mode.seen


@behaviour
def a_function_mode_is_as_deep_in_the_stack():
    with Depths() as mode:
        use(torch.ones(2, 2), torch.ones(1))
        one_step()
    return mode.seen


@behaviour
def a_dispatch_mode_sees_the_methods():
    with Dispatched() as mode:
        results = use(torch.ones(2, 2), torch.ones(1))
    return [mode.seen, results]


@behaviour
def a_dispatch_mode_sees_a_step():
    with Dispatched() as mode:
        one_step()
    return mode.seen


@behaviour
def a_dispatch_mode_is_as_deep_in_the_stack():
    with Dispatched() as mode:
        use(torch.ones(2, 2), torch.ones(1))
        one_step()
    return mode.depths


@behaviour
def a_subclass_is_as_deep_in_the_stack():
    Sub.note = staticmethod(lambda func: [getattr(func, "__name__", "none"), frames(3)])
    try:
        return [a_subclass_sees_the_methods()[0], a_subclass_goes_through_a_step()]
    finally:
        Sub.note = staticmethod(stood)


@behaviour
def a_subclass_sees_the_methods():
    Sub.seen = []
    x, one = torch.ones(2, 2).as_subclass(Sub), torch.ones(1).as_subclass(Sub)
    results = use(x, one)
    seen, Sub.seen = Sub.seen, None
    return [seen, results]


@behaviour
def a_subclass_goes_through_a_step():
    Sub.seen = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for _ in range(2):
        model(torch.ones(3, 2).as_subclass(Sub)).sum().backward()
    seen, Sub.seen = Sub.seen, None
    return seen


class Overriding(torch.Tensor):
    """Overrides methods and calls super()."""

    called, depths = [], []

    def to(self, *arguments, **named):
        Overriding.called.append(["to", len(arguments)])
        Overriding.depths.append(frames())
        return super().to(*arguments, **named)

    def item(self):
        Overriding.called.append(["item"])
        Overriding.depths.append(frames())
        return super().item()

    def cpu(self):
        Overriding.called.append(["cpu"])
        Overriding.depths.append(frames())
        return super().cpu()

    def copy_(self, other, non_blocking=False):
        Overriding.called.append(["copy_"])
        Overriding.depths.append(frames())
        return super().copy_(other, non_blocking)

    def __bool__(self):
        Overriding.called.append(["bool"])
        Overriding.depths.append(frames())
        return super().__bool__()

    def __repr__(self):
        Overriding.called.append(["repr"])
        Overriding.depths.append(frames())
        return "own " + super().__repr__()


@behaviour
def a_subclass_overrides_and_calls_super():
    Overriding.called = []
    x, one = torch.ones(2, 2).as_subclass(Overriding), torch.ones(1).as_subclass(Overriding)
    failed = [reported(x.item), reported(x.to, "nowhere"), reported(lambda: x.to(self=x))]
    return [use(x, one), Overriding.called, split(failed)[0]]


@behaviour
def a_subclass_that_overrides_is_as_deep_in_the_stack():
    Overriding.depths = []
    x, one = torch.ones(2, 2).as_subclass(Overriding), torch.ones(1).as_subclass(Overriding)
    use(x, one)
    return [Overriding.depths, reported(x.item), reported(x.to, "nowhere"), reported(lambda: x.to(self=x))]


@behaviour
def lazy_modules_move():
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d())
    model.to("cpu")
    model.cpu()
    model.to(torch.float32)
    model[0].weight.to("cpu")
    model.half().float()
    model(torch.ones(2, 3))
    fresh = nn.LazyLinear(8)
    return [str(model)] + split([
        reported(lambda: fresh.weight.item()), reported(lambda: fresh.weight.tolist()), reported(lambda: repr(fresh.weight)),
        reported(lambda: fresh.weight.copy_(torch.ones(1))), reported(lambda: fresh.weight.numpy()), reported(fresh.weight.pin_memory),
    ])[0]  # fmt: skip


def split(found):
    """Return the messages and the frames of what ``reported`` returned."""
    return [each if isinstance(each, str) else each[-2:] for each in found], [
        each if isinstance(each, str) else each[:-2] for each in found
    ]


@behaviour
def errors_have_their_messages():
    return split(errors())[0]


@behaviour
def errors_have_their_tracebacks():
    return split(errors())[1]


def errors():
    x = torch.ones(2)
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("forward")

    class FailingStep(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            raise KeyError("step")

    class FailingBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("backward")

    def closure():
        raise KeyError("closure")

    def failing(*_):
        raise KeyError("hook")

    hooked = nn.Sequential(nn.Linear(2, 2))
    hooked.register_forward_hook(failing)
    inner = nn.Sequential(nn.Sequential(Failing()))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    steps = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 - epoch))
    requiring = torch.ones(2, requires_grad=True)
    calls = [
        lambda: x.item(), lambda: bool(x), lambda: float(x), lambda: int(x), lambda: complex(x), lambda: [1, 2][x],
        lambda: x.to("nowhere"), lambda: x.to(), lambda: x.to(5, 6, 7), lambda: x.copy_(torch.ones(3)),
        lambda: x.equal(5), lambda: x.allclose(5), lambda: x.masked_select(x), lambda: x.is_nonzero(),
        lambda: requiring.numpy(), lambda: x.item(3), lambda: x.tolist(3), lambda: x.numpy(force=5, no=3),
        lambda: format(x, "q"), lambda: format(torch.ones(1), "q"), lambda: x.nonzero(as_tuple=5, no=6),
        lambda: torch.ones(2, device="meta").item(), lambda: torch.ones(2, device="meta").tolist(),
        lambda: torch.ones(2).to_sparse().numpy(), lambda: x.cuda(5, 6, 7), lambda: x.cpu(1, 2),
        lambda: Failing()(x), lambda: inner(x), lambda: hooked(x), lambda: model(), lambda: model(x, x),
        lambda: model(torch.ones(3)), lambda: nn.Module()(x), lambda: model.to("nowhere"), lambda: model.to(5, 6),
        lambda: model.to(torch.int64), lambda: model.cpu(5), lambda: model.cuda(0, 1), lambda: model.zero_grad(1, 2),
        lambda: optimizer.zero_grad(1, 2, 3), lambda: optimizer.zero_grad(no=3), lambda: optimizer.step(closure),
        lambda: optimizer.step(1, 2, 3), lambda: FailingStep(model.parameters(), 0.1).step(), lambda: plateau.step(),
        lambda: plateau.step("loss"), lambda: steps.step(), lambda: steps.step(1, 2, 3),
        lambda: x.sum().backward(), lambda: requiring.backward(), lambda: FailingBackward.apply(requiring).sum().backward(),
        lambda: torch.autograd.backward(x), lambda: torch.autograd.backward([requiring], [x, x]),
        lambda: torch.autograd.grad(x.sum(), x), lambda: torch.autograd.grad(requiring, requiring), lambda: torch.autograd.grad(),
        lambda: torch.autograd.grad(FailingBackward.apply(requiring).sum(), requiring), lambda: torch.autograd.grad(x, no=5),
        lambda: torch.autograd.backward(requiring.sum(), no=5), lambda: torch.autograd.backward(requiring.sum(), inputs=[]),
        lambda: torch.save(1), lambda: torch.save(lambda: 1, io.BytesIO()), lambda: torch.save(x, "/no/such/folder/x"),
        lambda: torch.save(x, io.BytesIO(), no=5), lambda: torch.load("/no/such/file"), lambda: torch.load(io.BytesIO(b"no")),
        lambda: torch.load(5), lambda: torch.nn.utils.clip_grad_norm_([requiring], "no"),
        lambda: torch.nn.utils.clip_grad_norm_(), lambda: torch.nn.utils.clip_grad_value_(5, 5, 5, 5),
        lambda: DataLoader([1], batch_size=0), lambda: DataLoader([1], num_workers=-1), lambda: DataLoader(),
        lambda: next(iter(DataLoader([1, "x", None]))), lambda: list(DataLoader([1, object()], batch_size=2)),
        lambda: list(DataLoader(5)), lambda: torch.set_num_threads("no"), lambda: torch.set_num_threads(0),
        lambda: torch.set_float32_matmul_precision("no"), lambda: torch.set_num_interop_threads(-1),
        lambda: torch.cuda.synchronize("nowhere"), lambda: torch.cuda.set_sync_debug_mode("no"),
        lambda: torch.distributed.all_reduce(x), lambda: torch.distributed.barrier(1, 2, 3, 4, 5),
        lambda: torch.distributed.broadcast(), lambda: torch.profiler.profile(no=5), lambda: torch.autograd.detect_anomaly(1, 2, 3),
        lambda: torch.cuda.amp.GradScaler(enabled=False).step(5), lambda: torch.cuda.amp.GradScaler(enabled=False).step(),
    ]  # fmt: skip
    result = [reported(call) for call in calls]
    with torch.autograd.detect_anomaly(check_nan=False):
        result.append(reported(lambda: FailingBackward.apply(requiring).sum().backward()))
    return result


class Items(Dataset):
    """Applies a given function to each item."""

    def __init__(self, what):
        self.what = what

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return self.what(index)


def fails(index):
    raise KeyError("item %s" % index)


def collate_fails(items):
    raise KeyError("collate")


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield json.dumps(frames())
        raise KeyError("stream")


@behaviour
def errors_of_loaders_have_their_tracebacks():
    return [
        reported(lambda: list(DataLoader(Items(fails)))),
        reported(lambda: list(DataLoader(Items(int), collate_fn=collate_fails))),
        reported(lambda: list(DataLoader(Stream(), batch_size=None))),
        reported(lambda: list(DataLoader(Items(fails), batch_size=None))),
        reported(lambda: list(DataLoader(Items(int), sampler=map(fails, range(3))))),
    ]


@behaviour
def errors_of_workers_have_their_tracebacks():
    return [
        reported(lambda: list(DataLoader(Items(fails), num_workers=1, timeout=120))),
        reported(lambda: list(DataLoader(Items(int), num_workers=1, collate_fn=collate_fails, timeout=120))),
        reported(lambda: list(DataLoader(Items(int), num_workers=1, worker_init_fn=fails, timeout=120))),
    ]


def its_frames(index):
    return json.dumps(frames())


def collate_frames(items):
    return [json.dumps(frames())] + items


@behaviour
def stacks_are_as_deep_in_what_the_user_wrote():
    seen = {}

    def note(name):
        seen.setdefault(name, []).append(frames(2))

    class Noting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 1)

        def forward(self, x):
            note("forward")
            return self.inner(x)

        def _apply(self, *arguments):
            note("_apply")
            return super()._apply(*arguments)

    class Stepping(torch.optim.SGD):
        def step(self, closure=None):
            note("step")
            return super().step(closure)

        def zero_grad(self, set_to_none=True):
            note("zero_grad")
            return super().zero_grad(set_to_none)

    class Reducing(torch.optim.lr_scheduler.StepLR):
        def get_lr(self):
            note("get_lr")
            return super().get_lr()

        def step(self, *arguments):
            note("scheduler step")
            return super().step(*arguments)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            note("function forward")
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            note("function backward")
            return grad

    class Pickled:
        def __reduce__(self):
            note("pickled")
            return int, ()

        def __getstate__(self):
            note("getstate")
            return {}

    model = nn.Sequential(Noting())
    model.register_forward_pre_hook(lambda *_: note("pre hook"))
    model.register_forward_hook(lambda *_: note("hook"))
    optimizer = Stepping(model.parameters(), 0.1)
    plain = torch.optim.SGD(model.parameters(), 0.1)
    adam = torch.optim.Adam(model.parameters(), 0.1)
    scheduler = Reducing(optimizer, 1)
    loss = None

    def closure():
        note("closure")
        loss = Function.apply(model(torch.ones(1, 2))).sum()
        loss.register_hook(lambda grad: note("tensor hook"))
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.zero_grad()
        optimizer.step(closure)
        plain.step(closure)
        adam.step(closure)
        scheduler.step()
    model.to(torch.float64)
    model.cpu()
    torch.save(Pickled(), io.BytesIO())
    torch.optim.LBFGS(model.float().parameters(), max_iter=2).step(closure)
    if hasattr(plain, "register_step_post_hook"):
        plain.register_step_pre_hook(lambda *_: note("step pre hook"))
        plain.register_step_post_hook(lambda *_: note("step post hook"))
        plain.step()
    for name, items in (("item", Items(its_frames)), ("stream", Stream())):
        loader = DataLoader(items, batch_size=None if name == "stream" else 1, collate_fn=collate_frames)
        if name == "stream":
            loader = DataLoader(items, batch_size=None)
        batches = iter(loader)
        seen[name] = [next(batches)]
    seen["in a worker"] = list(
        DataLoader(Items(its_frames), num_workers=1, collate_fn=collate_frames, timeout=120)
    )[:1]
    return seen


def complain(level):
    warnings.warn("complaint at %d" % level, stacklevel=level)


@behaviour
def warnings_name_the_same_places():
    imaginary = torch.ones(2, dtype=torch.complex64)

    class Complaining(nn.Module):
        def forward(self, x):
            for level in range(1, 7):
                complain(level)
            return x

    class Step(torch.optim.SGD):
        def step(self, closure=None):
            complain(1)
            complain(2)
            complain(3)
            complain(4)
            return super().step(closure)

    def item(index):
        for level in range(1, 6):
            complain(level)
        return index

    def collate(items):
        for level in range(1, 6):
            complain(level)
        return items

    model = nn.Linear(2, 1)
    optimizer = Step(model.parameters(), 0.1)

    def schedule():
        fresh = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(fresh, 1)
        scheduler.step()
        scheduler.step(3)
        fresh.step()

    def twice():
        loss = model(torch.ones(1, 2)).sum()
        loss.backward(create_graph=True)

    def anomaly():
        with torch.autograd.detect_anomaly():
            pass

    def plateau():
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, verbose=True)

    def sequential():
        fresh = torch.optim.SGD(model.parameters(), 0.1)
        fresh.step()
        first, second = (torch.optim.lr_scheduler.ConstantLR(fresh) for _ in range(2))
        scheduler = torch.optim.lr_scheduler.SequentialLR(fresh, [first, second], milestones=[1])
        scheduler.step()
        scheduler.step()

    def saved():
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        return type(torch.load(buffer))

    def clipped():
        return torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)

    def unwritable():
        import numpy

        array = numpy.ones(3)
        array.setflags(write=False)
        return torch.from_numpy(array).tolist()

    calls = [
        lambda: imaginary.to(torch.float32), lambda: torch.ones(2).copy_(imaginary), lambda: float(imaginary[:1]),
        lambda: Complaining()(torch.ones(1)), lambda: nn.Sequential(Complaining())(torch.ones(1)),
        lambda: optimizer.step(), lambda: list(DataLoader(Items(item), collate_fn=collate)),
        lambda: list(DataLoader(Items(item), batch_size=None)), schedule, twice, anomaly, plateau, sequential, saved, clipped,
        unwritable, lambda: DataLoader([1], num_workers=500), lambda: torch.cuda.amp.GradScaler(),
        lambda: torch.ones(1, requires_grad=True).mul(2).grad, lambda: torch.set_num_threads(1),
        lambda: torch.ones(3, 3).T.to(torch.float64), lambda: torch.ones(3).T.tolist(), lambda: model.to(torch.complex64).float(),
        lambda: nn.Linear(2, 1).to(torch.complex64).to(torch.complex128), lambda: torch.ones(2, names=["a"]).to("cpu"),
        lambda: torch.empty(0, 3).nonzero(), lambda: nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1)).item(),
        lambda: nn.MSELoss()(torch.ones(2), torch.ones(2, 1)), lambda: nn.Softmax()(torch.ones(2)),
        lambda: nn.Sequential(nn.Softmax())(torch.ones(2)), lambda: nn.functional.softmax(torch.ones(2)).tolist(),
    ]  # fmt: skip
    return [warned(call) for call in calls]


@behaviour
def warnings_are_told_apart_and_filtered_as_they_should_be():
    imaginary = torch.ones(2, dtype=torch.complex64)
    counts = []
    for filters in (
        [("default", "", "")],
        [("once", "", "")],
        [("module", "", "")],
        [("ignore", "", "__main__")],
        [("ignore", "", "torch")],
        [("ignore", "", "torch\\..*")],
        [("ignore", "", ".*perfwrap.*")],
        [("error", "", "__main__")],
    ):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.resetwarnings()
            for action, message, module in filters:
                warnings.filterwarnings(action, message, module=module)
            for _ in range(3):
                early.said(complain, 2)
                early.said(complain, 1)
                early.said(lambda: complain(3))
                early.said(imaginary.to, torch.float32)
                early.said(lambda: imaginary.to(torch.float32))
                early.said(lambda: torch.ones(2).copy_(imaginary))
                early.said(lambda: nn.Softmax()(torch.ones(2)))
                early.said(lambda: nn.Sequential(nn.Softmax())(torch.ones(2)))
            counts.append([[str(each.message)[:60], place(each.filename), each.lineno] for each in caught])
    counts.append(sorted(str(key)[:80] for key in globals().get("__warningregistry__", {})))
    return counts


def to_double(x):
    return x.to(torch.float64)


TRACED = [
    to_double,
    lambda x: x.cpu(),
    lambda x: torch.ones(2).copy_(x),
    lambda x: x.copy_(torch.ones(2)),
    lambda x: torch.Tensor.to(x, torch.float64),
    lambda x: torch.Tensor.item(x),
    lambda x: torch.ones(2).to(x),
    lambda x: torch.ones(2).equal(x),
    lambda x: torch.ones(2).allclose(x),
    lambda x: torch.ones(2).masked_select(x),
    lambda x: x.masked_select(x > 0),
    lambda x: x.item(),
    lambda x: x.nonzero(),
    lambda x: x.tolist(),
    lambda x: x.numpy(),
    lambda x: torch.nonzero(x),
    lambda x: x.cuda(),
    lambda x: x.pin_memory(),
    lambda x: x.equal(x) + x.allclose(x) + x.is_nonzero(),
    lambda x: bool(x),
    lambda x: float(x),
    lambda x: repr(x),
    lambda x: format(x),
    lambda x: torch.autograd.backward(x),
    lambda x: torch.autograd.grad(x, x),
    lambda x: x.backward(),
    lambda x: torch.nn.utils.clip_grad_norm_(x, 1.0),
]


def nodes(graph):
    return [
        [
            node.op,
            early.said(resolve_name, node.target) if callable(node.target) else str(node.target),
            node.target is getattr(torch.Tensor, getattr(node.target, "__name__", ""), None),
            node.name,
            str(node.args),
            str(node.kwargs),
        ]
        for node in graph.nodes
    ]


@behaviour
def fx_traces_to_the_same_nodes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x):
            return self.inner(x).to(torch.float64).cpu() + torch.ones(2).copy_(x)

    def trace(function):
        traced = torch.fx.symbolic_trace(function)
        return [nodes(traced.graph), traced.code]

    found = [early.said(trace, function) for function in TRACED + [Model(), nn.Sequential(Model())]]
    return found + split([reported(torch.fx.symbolic_trace, each) for each in (TRACED[-7], TRACED[3])])[0]


@behaviour
def proxies_of_tensors_trace_to_the_same_nodes():
    try:
        from torch.fx.experimental.proxy_tensor import make_fx
    except ImportError:
        return {"lacks": "make_fx"}

    def trace(function):
        return make_fx(function)(torch.ones(2)).code

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return [early.said(trace, function) for function in TRACED + [model]]


def new_class(number=[0]):
    """Return a class of modules that has not been called yet."""
    number[0] += 1

    def forward(self, x):
        return self.inner(x).to(torch.float64)

    def make(self, inner):
        nn.Module.__init__(self)
        self.inner = inner

    return type("Fresh", (nn.Module,), {"forward": forward, "__init__": make, "__module__": __name__})


def graphs(traced):
    return [str(traced.graph), str(traced.inlined_graph), traced.code]


@behaviour
def tracing_a_class_for_the_first_time():
    linear, embedding = nn.Linear(2, 2), nn.Embedding(4, 2)
    numbers = torch.ones(2, 2, dtype=torch.long)
    found = []
    for inner, example in (
        (linear, torch.ones(2, 2)),
        (embedding, numbers),
        (nn.Sequential(linear, nn.ReLU()), torch.ones(2, 2)),
    ):
        for options in ({}, {"check_trace": False}):
            found.append(warned(lambda: graphs(torch.jit.trace(new_class()(inner), example, **options))))
            found.append(early.said(lambda: graphs(torch.jit.trace(new_class()(inner), example, **options))))
    return found


@behaviour
def tracing_plain_modules_and_functions():
    def item(x):
        return x * x.sum().item() + float(x[0]) + int(x[0]) + (1 if x[0] > 0 else 2) + len(x.tolist())

    def moves(x):
        return (
            torch.ones(2).copy_(x.to(torch.float64).cpu()) + x.nonzero().sum() + x.masked_select(x > 0).sum()
        )

    def models():
        model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        return graphs(torch.jit.trace(model.eval(), torch.ones(3, 2)))

    def module_functions():
        return sorted(
            torch.jit.trace_module(nn.Linear(2, 2), {"forward": torch.ones(1, 2)})._c._method_names()
        )

    return [
        warned(
            lambda f=f: [
                str(torch.jit.trace(f, torch.ones(2)).graph),
                str(torch.jit.trace(f, torch.ones(2)).code),
            ]
        )
        for f in (item, moves)
    ] + [
        early.said(lambda: str(torch.jit.trace(moves, torch.ones(2)).graph)),
        early.said(models),
        early.said(models),
        early.said(module_functions),
    ]


def scripted(x: torch.Tensor):
    return x.to(torch.float64).cpu().sum().item(), x.nonzero(), x.equal(x), x.tolist() if False else 0


def scripted_moves(x: torch.Tensor):
    y = torch.ones(2).copy_(x).to("cpu")
    if bool(y.sum() > 0) and y.allclose(y) and int(y[0]) > 0 and float(y[0]) > 0:
        return y.masked_select(x > 0)
    return y


@behaviour
def scripting():
    def script(what):
        made = torch.jit.script(what)
        return [str(made.graph), made.code, str(getattr(made, "inlined_graph", ""))]

    found = [early.said(script, what) for what in (scripted_moves, nn.Sequential(nn.Linear(2, 2), nn.ReLU()))]
    found += split([reported(torch.jit.script, scripted)])[0]
    found.append(early.said(script, nn.TransformerEncoderLayer(4, 2, 4)))
    found.append(early.scrub(early.said(lambda: torch.jit.script(scripted_moves)(torch.ones(2)))))
    return found


@behaviour
def functorch_and_vmap():
    if not hasattr(torch, "func"):
        return {"lacks": "torch.func"}
    from torch.func import functional_call, grad, jvp, vmap

    model = nn.Linear(2, 1)
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters, x):
        return functional_call(model, parameters, (x,)).sum()

    x = torch.ones(3, 2)
    calls = [
        lambda: vmap(lambda x: x.to(torch.float64))(x), lambda: vmap(lambda x: x.sum().item())(x),
        lambda: vmap(lambda x: bool(x.sum()))(x), lambda: vmap(lambda x: x.tolist())(x), lambda: vmap(lambda x: x.nonzero())(x),
        lambda: vmap(lambda x: torch.ones(2).copy_(x))(x), lambda: vmap(lambda x: x.clone().copy_(x))(x),
        lambda: vmap(lambda x: x.numpy())(x), lambda: vmap(lambda x: repr(x))(x), lambda: vmap(model)(x),
        lambda: vmap(grad(loss), in_dims=(None, 0))(parameters, x), lambda: grad(lambda x: x.to(torch.float64).sum())(x),
        lambda: jvp(lambda x: x.to(torch.float64).cpu(), (x,), (x,)), lambda: grad(lambda x: x.sum().item())(x),
        lambda: grad(lambda x: repr(x))(x), lambda: vmap(lambda x: x.masked_select(x > 0))(x),
    ]  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.data.fill_(0.5)
    parameters = {name: torch.full_like(value, 0.5) for name, value in parameters.items()}
    return [[early.scrub(early.said(call)), split([reported(call)])[0]] for call in calls]


@behaviour
def other_kinds_of_tensors():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as fake:
        x = torch.ones(2, 2)
        found = [[early.scrub(early.said(call)), split([reported(call)])[0]] for call in (
            x.item, x.tolist, x.cpu, lambda: x.to(torch.float64), lambda: x.copy_(x), lambda: bool(x), lambda: repr(x), x.nonzero,
            lambda: x.equal(x), x.numpy, x.cuda, lambda: x.to("meta"), x[0, 0].item, lambda: nn.Linear(2, 2)(x))]  # fmt: skip
    del fake
    meta = torch.ones(2, device="meta")
    found += [[early.scrub(early.said(call)), split([reported(call)])[0]] for call in (
        meta.item, meta.tolist, meta.cpu, lambda: meta.to("cpu"), lambda: torch.ones(2).copy_(meta), lambda: bool(meta),
        lambda: repr(meta), meta.nonzero, lambda: meta.equal(meta), meta.numpy)]  # fmt: skip
    sparse = torch.eye(2).to_sparse()
    found += [
        early.scrub(early.said(call))
        for call in (
            lambda: sparse.to(torch.float64),
            sparse.cpu,
            lambda: repr(sparse),
            lambda: sparse.clone().copy_(sparse),
        )
    ]
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    found += [
        early.scrub(early.said(call))
        for call in (lambda: nested.to(torch.float64), nested.cpu, lambda: repr(nested))
    ]
    try:
        from torch.masked import masked_tensor
    except ImportError:
        return found + [{"lacks": "torch.masked.masked_tensor"}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        masked = masked_tensor(torch.ones(2), torch.tensor([True, False]))
        found += [
            early.scrub(early.said(call))
            for call in (
                lambda: masked.to(torch.float64),
                masked.cpu,
                lambda: repr(masked),
                masked.tolist,
                masked[0].item,
            )
        ]
    return found


class Holder:
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return self.transform(torch.ones(2))


TRANSFORMS = ["tolist", "item", "numpy", "to", "cpu", "copy_", "equal", "__repr__", "__bool__", "pin_memory"]


@behaviour
def what_holds_methods_is_saved_and_copied():
    found = []
    for name in TRANSFORMS:
        method = getattr(torch.Tensor, name)
        for value in (
            method,
            Holder(method),
            functools.partial(method, dtype=torch.float64),
            {method: 1},
            [method],
        ):
            buffer = io.BytesIO()
            found.append(
                [
                    name,
                    early.said(lambda value=value: pickle.dumps(value, 2).hex()),
                    split([reported(torch.save, value, buffer)])[0],
                    early.said(lambda value=value: type(pickle.loads(pickle.dumps(value))).__name__),
                    early.said(lambda value=value: type(copy.deepcopy(value)).__name__),
                ]
            )
        found.append(
            [
                pickle.loads(pickle.dumps(method)) is method,
                copy.deepcopy(method) is method,
                functools.partial(method).func is FIRST[name],
                {method: 1}.get(FIRST[name]),
            ]
        )
    return found


HELD = {}
"""What held methods of tensors' from the start."""


@behaviour
def what_held_methods_from_the_start_is_saved_and_copied():
    found = []
    for _ in range(10):
        training.steps(50)
        for name, values in HELD.items():
            found += [[name, split([reported(torch.save, value, io.BytesIO())])[0]] for value in values]
            found.append([name, early.said(lambda values=values: pickle.dumps(values, 2).hex())])
            found.append(
                [name, early.said(lambda values=values: copy.deepcopy(values)[0].transform is FIRST[name])]
            )
    return found


@behaviour
def what_held_methods_from_the_start_is_sent_to_spawned_workers():
    loader = DataLoader(
        HELD["tolist"][0], batch_size=None, num_workers=1, multiprocessing_context="spawn", timeout=120
    )
    return early.said(list, loader)


@behaviour
def what_holds_methods_is_sent_to_spawned_workers():
    loader = DataLoader(
        Holder(torch.Tensor.tolist),
        batch_size=None,
        num_workers=1,
        multiprocessing_context="spawn",
        timeout=120,
    )
    return early.said(list, loader)


class Asked:
    """Says what it is asked for that it does not have."""

    asked = []

    def __getattr__(self, name):
        if Asked.asked is not None and frames(2)[0].split(" ")[0] != "HERE/early.py":
            Asked.asked.append([type(self).__name__, name])
        raise AttributeError(name)


@behaviour
def objects_of_the_users_are_asked_the_same():
    asked = Asked.asked = []

    class Collating(Asked):
        def __call__(self, items):
            return torch.stack(items)

    class Data(Asked):
        def __len__(self):
            asked.append(["Data", "__len__"])
            return 4

        def __getitem__(self, index):
            return torch.ones(2)

    class Sampling(Asked):
        def __iter__(self):
            asked.append(["Sampling", "__iter__"])
            return iter(range(4))

        def __len__(self):
            asked.append(["Sampling", "__len__"])
            return 4

    class Batches(Sampling):
        def __iter__(self):
            asked.append(["Batches", "__iter__"])
            return iter([[0, 1], [2, 3]])

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 1)

        def __getattr__(self, name):
            asked.append(["Model", name])
            return super().__getattr__(name)

        def __repr__(self):
            asked.append(["Model", "__repr__"])
            return "model"

        def __eq__(self, other):
            asked.append(["Model", "__eq__"])
            return self is other

        def __hash__(self):
            asked.append(["Model", "__hash__"])
            return 1

        def __dir__(self):
            asked.append(["Model", "__dir__"])
            return super().__dir__()

        def parameters(self, recurse=True):
            asked.append(["Model", "parameters"])
            return super().parameters(recurse)

        def named_parameters(self, *arguments, **named):
            asked.append(["Model", "named_parameters"])
            return super().named_parameters(*arguments, **named)

        def modules(self):
            asked.append(["Model", "modules"])
            return super().modules()

        def named_modules(self, *arguments, **named):
            asked.append(["Model", "named_modules"])
            return super().named_modules(*arguments, **named)

        def buffers(self, recurse=True):
            asked.append(["Model", "buffers"])
            return super().buffers(recurse)

        def children(self):
            asked.append(["Model", "children"])
            return super().children()

        def state_dict(self, *arguments, **named):
            asked.append(["Model", "state_dict"])
            return super().state_dict(*arguments, **named)

        def extra_repr(self):
            asked.append(["Model", "extra_repr"])
            return ""

        def forward(self, x):
            return self.inner(x)

    class Descending(torch.optim.SGD):
        def __getattr__(self, name):
            asked.append(["Descending", name])
            raise AttributeError(name)

        def __repr__(self):
            asked.append(["Descending", "__repr__"])
            return "descending"

        def state_dict(self):
            asked.append(["Descending", "state_dict"])
            return super().state_dict()

    class Reducing(torch.optim.lr_scheduler.StepLR):
        def __getattr__(self, name):
            asked.append(["Reducing", name])
            raise AttributeError(name)

    class Loading(DataLoader):
        def __getattr__(self, name):
            asked.append(["Loading", name])
            raise AttributeError(name)

        def __len__(self):
            asked.append(["Loading", "__len__"])
            return super().__len__()

    class Meta(type):
        def __getattr__(cls, name):
            asked.append(["class", name])
            raise AttributeError(name)

    class Loss(Asked, metaclass=Meta):
        def __call__(self, output):
            return output.sum()

        def __bool__(self):
            asked.append(["Loss", "__bool__"])
            return True

    class Arguments(dict, metaclass=Meta):
        def __getattr__(self, name):
            asked.append(["Arguments", name])
            raise AttributeError(name)

        def __iter__(self):
            asked.append(["Arguments", "__iter__"])
            return super().__iter__()

        def values(self):
            asked.append(["Arguments", "values"])
            return super().values()

        def items(self):
            asked.append(["Arguments", "items"])
            return super().items()

    class Taking(nn.Module):
        def forward(self, arguments):
            return dict.__getitem__(arguments, "x") * 2

    model = Model()
    optimizer = Descending(model.parameters(), 0.1)
    scheduler = Reducing(optimizer, 1)
    loss = Loss()
    for loader in (
        Loading(Data(), batch_size=2, collate_fn=Collating()),
        Loading(Data(), batch_size=2, sampler=Sampling()),
        Loading(Data(), batch_sampler=Batches()),
        Loading(Data(), batch_size=2, collate_fn=Collating(), num_workers=1, timeout=120),
    ):
        for batch in loader:
            optimizer.zero_grad()
            loss(model(batch)).backward()
            torch.nn.utils.clip_grad_norm_(list(model.inner.parameters()), 1.0)
            optimizer.step()
        scheduler.step()
    model.to(torch.float64)
    Taking()(Arguments(x=torch.ones(2)))
    torch.save(Loss.__name__, io.BytesIO())
    Asked.asked = None
    return asked


@behaviour
def nothing_more_is_referred_to():
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = DataLoader(torch.ones(4, 2))
    found = []
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        loss.item()
        found.append([sys.getrefcount(each) for each in (batch, loss, loss.grad_fn)])
    scheduler.step()
    for each in (
        model,
        model[0],
        model[0].weight,
        model[0].weight.grad,
        optimizer,
        scheduler,
        loader,
        loader.dataset,
    ):
        found.append([sys.getrefcount(each), weakref.getweakrefcount(each)])
    found.append([sorted(vars(each)) for each in (model, model[0], optimizer, scheduler, loader)])
    found.append([len(each._forward_hooks) for each in (model, model[0])])
    found.append(sorted(vars(model[0].weight)))
    alive = [weakref.ref(each) for each in (model, optimizer, scheduler, loader, batch, loss)]
    del model, optimizer, scheduler, loader, batch, loss, each
    found.append([each() is None for each in alive])
    gc.collect()
    found.append([each() is None for each in alive])
    return found


@behaviour
def random_numbers_and_modes_stay():
    one_step()
    found = [
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(), torch.get_default_dtype(),
        torch.get_float32_matmul_precision(), torch.is_anomaly_enabled(), gc.isenabled(), gc.get_threshold(),
        sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), threading.active_count(),
        torch._C._get_tracing_state(), len(torch._C._functorch.__dict__) if hasattr(torch._C, "_functorch") else 0,
        sorted(key for key in os.environ if key != "PYTHONPATH"), sys.argv[1:],
        [path for path in sys.path[1:] if not path.startswith(TEMPORARY)], sys.flags, sys.excepthook is sys.__excepthook__,
        threading.excepthook is getattr(threading, "__excepthook__", threading.excepthook), sys.unraisablehook is sys.__unraisablehook__,
    ]  # fmt: skip
    torch.manual_seed(5)
    random.seed(5)
    model = one_step()
    return [str(each) for each in found] + [
        torch.rand(1).item(), random.random(), [each.tolist() for each in model.parameters()]
    ]  # fmt: skip


@behaviour
def recursion_ends_where_it_should():
    class Deep(nn.Module):
        def forward(self, x, left):
            return self(x, left - 1) if left else x

    limit = 400
    old = sys.getrecursionlimit()

    def reached(left):
        sys.setrecursionlimit(limit)
        try:
            Deep()(torch.ones(1), left)
        except RecursionError:
            return False
        finally:
            sys.setrecursionlimit(old)
        return True

    low, high = 1, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) else (low, middle)
    return low


@behaviour
def one_who_replaces_functions_as_well_is_not_disturbed():
    found = []
    for name in ("item", "to", "tolist", "__bool__"):
        before = getattr(torch.Tensor, name)
        present = name in vars(torch.Tensor)
        calls = []

        def theirs(self, *arguments, _before=before, _calls=calls, **named):
            _calls.append(len(arguments))
            return _before(self, *arguments, **named)

        setattr(torch.Tensor, name, theirs)
        training.steps(300)
        x = torch.ones(1)
        x.item(), x.to(torch.float64), x.tolist(), bool(x)
        found.append([name, present, getattr(torch.Tensor, name) is theirs, len(calls) > 0])
        if present:
            setattr(torch.Tensor, name, before)
        else:
            delattr(torch.Tensor, name)
        training.steps(300)
        found.append(
            [
                getattr(torch.Tensor, name) is before,
                name in vars(torch.Tensor),
                getattr(torch.Tensor, name) is FIRST[name],
            ]
        )
    for owner, name in (
        (nn.Module, "__call__"),
        (nn.Module, "to"),
        (torch, "save"),
        (torch.optim.Optimizer, "zero_grad"),
    ):
        before, calls = vars(owner)[name], []

        @functools.wraps(before)
        def counted(*arguments, _before=before, _calls=calls, **named):
            _calls.append(1)
            return _before(*arguments, **named)

        setattr(owner, name, counted)
        training.steps(300)
        stays = vars(owner)[name] is counted
        setattr(owner, name, before)
        training.steps(300)
        found.append([name, stays, vars(owner)[name] is before, len(calls)])
    return found


HANDLED = {}


class Handling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, kinds, args, kwargs or {})


@behaviour
def every_handler_that_is_registered_runs():
    hits = {}

    def register(name):
        def handler(*arguments, **named):
            hits[name] = hits.get(name, 0) + 1
            return 7

        HANDLED[FIRST[name]] = handler  # as programs do when they are imported

    HANDLED.clear()
    names = [
        "to",
        "item",
        "tolist",
        "cpu",
        "copy_",
        "nonzero",
        "equal",
        "masked_select",
        "numpy",
        "is_nonzero",
        "allclose",
    ]
    for name in names:
        register(name)
    x = torch.ones(2).as_subclass(Handling)
    for _ in range(6000 // len(names)):
        training.steps(3)
        for call in (
            lambda: x.to(torch.float64), x.item, x.tolist, x.cpu, lambda: x.copy_(x), x.nonzero, lambda: x.equal(x),
            lambda: x.masked_select(x), x.numpy, x.is_nonzero, lambda: x.allclose(x),
        ):  # fmt: skip
            early.said(call)
    return hits


@behaviour
def other_implementations_of_the_same_class_are_known():
    """Ask as libraries do that choose arguments by looking at functions."""
    import inspect

    def takes(function):
        return early.said(lambda: sorted(inspect.signature(function).parameters))

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    adam = torch.optim.Adam(model.parameters(), 0.1)
    schedulers = [
        torch.optim.lr_scheduler.StepLR(optimizer, 1),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5),
        torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.StepLR(optimizer, 1)]),
    ]
    found = [takes(scheduler.step) for scheduler in schedulers]
    found += [
        [scheduler.step.__name__, type(scheduler.step).__name__, scheduler.step.__code__.co_varnames]
        for scheduler in schedulers
    ]
    found += [
        takes(optimizer.step),
        takes(optimizer.zero_grad),
        takes(adam.step),
        takes(torch.save),
        takes(torch.load),
    ]
    found += [
        takes(nn.utils.clip_grad_norm_),
        takes(nn.utils.clip_grad_value_),
        takes(torch.autograd.backward),
        takes(torch.autograd.grad),
        takes(model.to),
    ]
    for each in (optimizer.step, adam.step, optimizer.zero_grad):
        found.append(
            [
                each.__code__.co_varnames,
                each.__code__.co_name,
                early.said(lambda each=each: place(inspect.getsourcefile(each))),
            ]
        )
        found.append([type(each).__name__, sorted(vars(each)), inspect.unwrap(each).__code__.co_varnames])
    for cls in (torch.optim.SGD, torch.optim.Adam):
        found.append(
            [
                cls.step.__name__,
                cls.step.__qualname__,
                sorted(vars(cls.step)),
                place(cls.step.__code__.co_filename),
            ]
        )
    return found


@behaviour
def the_same_things_are_in_the_modules():
    here = [
        torch,
        torch.nn,
        torch.optim,
        torch.utils.data,
        torch.autograd,
        torch.serialization,
        torch.cuda,
        torch.distributed,
    ]
    return [sorted(name for name in vars(module) if "perfwrap" in name or "recorder" in name) for module in here] + [
        isinstance(torch.Tensor, type), type(torch.Tensor).__name__, [each.__name__ for each in torch.Tensor.__mro__],
        [each.__name__ for each in nn.Module.__mro__], torch.Tensor.__flags__ if hasattr(torch.Tensor, "__flags__") else 0,
        isinstance(vars(torch.nn.Module).get("__call__"), types.FunctionType), sorted(torch.__all__) == sorted(set(torch.__all__)),
    ]  # fmt: skip


ONCE = {
    "what_held_methods_from_the_start_is_sent_to_spawned_workers",
    "errors_of_workers_have_their_tracebacks",
    "what_holds_methods_is_sent_to_spawned_workers",
    "stacks_are_as_deep_in_what_the_user_wrote",
    "every_handler_that_is_registered_runs",
}
"""Slow: only in a pause."""


def main():
    global training
    for name in METHODS:
        FIRST[name] = getattr(torch.Tensor, name)
    for name in TRANSFORMS:
        HELD[name] = [Holder(FIRST[name]), functools.partial(FIRST[name], dtype=torch.float64)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training = early.Training()
        training.steps(3)
        states = {"while recording": {}, "in a pause": {}}
        # Last what torch rejects: it might break a probe, which would see no more.
        behaviours = sorted(BEHAVIOURS.items(), key=lambda item: item[0].startswith("errors"))
        for name, function in behaviours:
            if name.startswith("errors"):
                importlib.import_module(
                    "torch._dynamo"
                )  # of torch 2.0 some of the errors keep it from being imported
            if name not in ONCE:
                states["while recording"][name] = early.outcome(function)
        importlib.import_module("torch._dynamo")

        training.steps(2500)
        for name, function in behaviours:
            training.steps_until_a_pause(700)
            states["in a pause"][name] = early.outcome(function)
    states["version"], states["steps"] = sys.version_info[:3], training.many
    print(json.dumps(states))


if __name__ == "__main__":
    main()
