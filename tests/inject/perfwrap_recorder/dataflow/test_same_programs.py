"""What a program sees, prints and raises is as without windows: subclasses, modes, forks, errors, compilation."""

from __future__ import annotations

import sys

import pytest

from .conftest import CONVERTS, is_given_up, is_window, notes, rows, windows

LOOP = """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters())
def train_step(x=None):
    optimizer.zero_grad()
    loss = net(torch.randn(3, 4) if x is None else x).pow(2).mean()
    loss.backward()
    optimizer.step()
    tell(loss)
"""

SHOWS_NO_FRAMES = sys.version_info >= (3, 11)
"""Whether tracebacks have no frame of the recorder."""

MODES = """
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
seen = []
class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        seen.append(str(function))
        return function(*arguments, **(options or {}))
class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        seen.append(function.__name__)
        return function(*arguments, **(options or {}))
"""


@pytest.mark.parametrize("around, windows", [("Dispatches", 0), ("Functions", 2)])
def test_modes_around_the_loop_see_what_they_see_without(same, around: str, windows: int) -> None:
    done = same(
        LOOP
        + MODES
        + f"""
with {around}():
    for step in range(STEPS): train_step(torch.randn(3, 4, requires_grad=True))
print(seen)
tell_all(net)
""",
        windows=windows,
    )
    if not windows:
        assert notes(done)[-1] == "no window: another dispatch mode is active"


@pytest.mark.parametrize("around", ["Dispatches", "Functions"])
def test_modes_inside_of_a_step_see_what_they_see_without(same, around: str) -> None:
    same(
        LOOP
        + MODES
        + f"""
for step in range(STEPS):
    with {around}():
        loss = net(torch.randn(3, 4)).pow(2).mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    tell(loss)
print(seen)
tell_all(net)
"""
    )


def test_a_mode_that_begins_in_a_window_and_stays_ends_it(same) -> None:
    done = same(
        LOOP
        + MODES
        + """
for step in range(6): train_step()
with Dispatches():
    for step in range(6): train_step()
for step in range(2): train_step()
print(len(seen), torch._C._len_torch_dispatch_stack())
tell_all(net)
""",
        windows=0,
    )
    assert notes(done)[0] == "window given up: another dispatch mode is active"


SUBCLASSES = """
seen = []
class Function(torch.Tensor):
    def __new__(cls, values): return values.as_subclass(cls)
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        seen.append(function.__name__)
        return super().__torch_function__(function, types, arguments, options or {})
    @property
    def shape(self):
        seen.append("shape")
        return super().shape
class Dispatch(torch.Tensor):
    @staticmethod
    def __new__(cls, values):
        made = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, device=values.device)
        made.values = values
        return made
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        seen.append(str(function))
        inner = torch.utils._pytree.tree_map_only(Dispatch, lambda one: one.values, (arguments, options or {}))
        result = function(*inner[0], **inner[1])
        return torch.utils._pytree.tree_map_only(torch.Tensor, Dispatch, result)
"""


@pytest.mark.parametrize("kind", ["Function", "Dispatch"])
def test_subclasses_of_tensors_see_what_they_see_without(same, kind: str) -> None:
    unwrap = ".values" if kind == "Dispatch" else ".as_subclass(torch.Tensor)"
    same(
        LOOP
        + SUBCLASSES
        + f"""
for step in range(STEPS):
    made = {kind}(torch.randn(3, 4)) * 2
    train_step((made + torch.ones(4)){unwrap})
    train_step({kind}(torch.randn(3, 4)){unwrap})
print(seen)
tell_all(net)
""",
        windows=2 if CONVERTS or kind == "Dispatch" else 0,
    )


CONSTRUCTED = {
    "the constructor": ("class Kind(torch.Tensor): pass", ""),
    "a constructor that calls it": (
        "class Kind(torch.Tensor):\n    def __new__(cls, *more): return super().__new__(cls, *more)",
        "",
    ),
    "a class of a window": (
        "Kind = torch.Tensor",
        "    if step == 5:\n        class Kind(torch.Tensor): pass",
    ),
}


@pytest.mark.parametrize("how", CONSTRUCTED)
def test_subclasses_that_the_constructor_makes_have_no_window(same, how: str) -> None:
    before, within = CONSTRUCTED[how]
    done = same(
        LOOP
        + f"""
{before}
for step in range(40):
{within}
    made = Kind(torch.randn(3, 4))
    train_step(made.as_subclass(torch.Tensor))
print(type(made).__name__, "__init_subclass__" in vars(torch.Tensor))
tell_all(net)
""",
        windows=0,
    )
    why = "the program has a class of tensors that PyTorch's constructor cannot make while it is watched"
    if within and not CONVERTS:
        why = "the program converts tensors to other classes"
    assert notes(done)[-1] == "no window: " + why
    assert any(map(is_given_up, notes(done))) == bool(within)


def test_lazy_modules_and_subclasses_of_parameters_are_made_in_a_window(same) -> None:
    same(
        LOOP
        + """
import warnings
warnings.simplefilter("ignore")
class Weight(nn.Parameter): pass
for step in range(STEPS):
    lazy = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    weight = Weight(torch.randn(3, 4))
    train_step(weight.detach())
    tell(lazy(weight.data), weight.data * 2, weight)
tell_all(net, lazy)
""",
        windows=2 if CONVERTS else 0,
    )


def test_backward_passes_deep_inside_of_each_other_run_without_a_window(same) -> None:
    done = same(
        LOOP
        + """
class Nested(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        with torch.enable_grad():
            context.x = x.detach().requires_grad_() - 1
        return context.x.detach()
    @staticmethod
    def backward(context, gradient):
        if context.x >= 0:
            with torch.enable_grad(): Nested.apply(context.x).sum().backward()
        return gradient
x = torch.tensor(40.0, requires_grad=True)
for step in range(10):
    if step in (5, 6): Nested.apply(x).sum().backward()
    train_step()
print(x.grad)
tell_all(net)
""",
        windows=0,
    )
    assert notes(done)[0] == "window given up: backward passes run inside of each other"


def test_parameters_are_swapped_without_a_window(same) -> None:
    done = same(
        LOOP
        + """
torch.__future__.set_swap_module_params_on_conversion(True)
for step in range(STEPS):
    train_step()
    if step == 5: net.load_state_dict({name: each * 2 for name, each in net.state_dict().items()})
tell_all(net)
""",
        windows=0,
    )
    assert notes(done)[-1] == "no window: the program swaps tensors"


def test_tensors_without_values_are_made_in_a_window(same) -> None:
    same(
        LOOP
        + """
from torch._subclasses.fake_tensor import FakeTensorMode
for step in range(STEPS):
    train_step()
    with FakeTensorMode() as fakes:
        x = torch.ones(3, 4)
    print((x * 2).shape, fakes.from_tensor(torch.ones(2)).add(1).shape)
tell_all(net)
"""
    )


SCRIPTS = """
import warnings
warnings.simplefilter("ignore")
@torch.jit.script
def product(x, y):
    z = x + 1
    return torch.mm(z, y)
class Net(nn.Module):
    def forward(self, x): return torch.mm(x, x)
module = torch.jit.script(Net())
"""


@pytest.mark.parametrize("call", ["product(x, x)", "module(x)"])
def test_errors_of_torchscript_read_the_same(same, call: str) -> None:
    done = same(
        LOOP
        + SCRIPTS
        + f"""
import traceback
x = torch.ones(2, 3)
for step in range(STEPS):
    train_step()
    if step > 4:
        try: {call}
        except RuntimeError: traceback.print_exc(file=sys.stdout)
print(type(product).__call__.__name__, type(module.forward).__call__.__name__)
tell_all(net)
""",
        windows=0,
    )
    why = "TorchScript code runs, whose errors have no text while it is watched"
    assert notes(done) == ["window given up: " + why, "no window: " + why]


def test_torchscript_that_does_not_run_has_windows(same) -> None:
    same(LOOP + SCRIPTS + "for step in range(STEPS): train_step()\ntell_all(net)\n")


FLEX = """
import warnings
warnings.simplefilter("ignore")
from torch.nn.attention.flex_attention import flex_attention
def score(value, batch, head, q, k): return value + (q - k)
for step in range(STEPS):
    train_step()
    q = torch.randn(1, 2, 16, 16)
    if step > 4:
        with torch.no_grad(): tell(flex_attention(q, q, q, score_mod=score))
tell_all(net)
"""


def test_flex_attention_runs(same) -> None:
    same(LOOP + FLEX, windows=None)


def test_higher_order_operators_run_in_a_window(same) -> None:
    same(
        LOOP
        + """
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.wrap import wrap
for step in range(STEPS):
    train_step()
    with torch.no_grad():
        tell(wrap(lambda x: x * 2, torch.randn(3)))
        tell(*map_impl(lambda x: [x + 1], [torch.randn(3, 2)], []))
tell_all(net)
"""
    )


WORKERS = """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 16
    def __getitem__(self, index): return torch.randn(4) + index + torch.rand(1)
loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, shuffle=True)
"""


def test_workers_that_start_in_a_window(same) -> None:
    done = same(
        LOOP
        + WORKERS
        + """
for epoch in range(4):
    for x in loader: train_step(x)
tell_all(net)
""",
        windows=None,
    )
    assert "window given up: the program forked" in notes(done)


def test_workers_that_start_in_inference_mode_while_a_window_is_open(same) -> None:
    done = same(
        LOOP
        + WORKERS
        + """
for step in range(5): train_step()
with torch.inference_mode():
    for x in loader: tell(net(x))
print(torch.ones(3).sum())
for step in range(20): train_step()
print(torch._C._len_torch_dispatch_stack())
tell_all(net)
""",
        windows=2,
    )
    assert notes(done)[0] == "window given up: the program forked"


FORKS = {
    "os.fork": """
child = os.fork()
if child == 0:
    print(torch.ones(3).sum().item(), net(torch.ones(1, 4)).shape, flush=True)
    os._exit(0)
os.waitpid(child, 0)
""",
    "multiprocessing": """
sys.stdout.flush()
import multiprocessing
process = multiprocessing.get_context("fork").Process(target=train_step)
process.start()
process.join()
print(process.exitcode)
""",
    "subprocess": """
import subprocess
print(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout)
""",
    "a hook in backward": """
def hook(gradient):
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
x = torch.randn(3, 4, requires_grad=True)
x.register_hook(hook)
train_step(x)
print(torch.ones(2) * 2)
""",
}


@pytest.mark.parametrize("how", FORKS)
def test_a_process_that_starts_in_a_window(same, how: str) -> None:
    done = same(
        LOOP
        + "for step in range(5): train_step()\nsys.stdout.flush()\n"
        + FORKS[how]
        + "for step in range(20): train_step()\nprint(torch._C._len_torch_dispatch_stack())\ntell_all(net)\n"
    )
    assert ("window given up: the program forked" in notes(done)) is (how != "subprocess")


def test_two_ranks_of_ddp(same) -> None:
    same(
        """
import torch.distributed as dist, tempfile
sys.stdout.flush()
folder = tempfile.mkdtemp()
child = os.fork()
rank = int(child == 0)
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank, world_size=2)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
optimizer = torch.optim.Adam(net.parameters())
torch.manual_seed(rank)
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.randn(5, 4)).pow(2).mean()
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    optimizer.step()
    if not rank: tell(loss, total)
dist.destroy_process_group()
if rank: os._exit(0)
os.waitpid(child, 0)
tell_all(net)
"""
    )


def test_errors_that_the_program_catches_read_the_same(same) -> None:
    same(
        LOOP
        + """
import traceback
def fail(step):
    try:
        if step % 3 == 0: torch.ones(3) + torch.ones(4)
        if step % 3 == 1: torch.ones(3)[7]
        torch.linalg.inv(torch.zeros(2, 2))
    except (RuntimeError, IndexError) as error:
        traceback.print_exc(file=sys.stdout)
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x * 1
    @staticmethod
    def backward(context, gradient): return gradient.view(77)
import warnings
warnings.simplefilter("always")
warnings.showwarning = lambda text, kind, file, line, *more: print(text, kind, file, line)
for step in range(STEPS):
    try:
        loss = Fails.apply(net(torch.randn(3, 4))).sum()
        loss.backward()
    except RuntimeError:
        traceback.print_exc(file=sys.stdout)
    out = torch.empty(1)
    torch.add(torch.ones(3), torch.ones(3), out=out)
    fail(step)
    train_step()
tell_all(net)
""".replace(
            "print_exc(file=sys.stdout)",
            "print_exc(file=sys.stdout)" if SHOWS_NO_FRAMES else "print_exc(0, sys.stdout)",
        )
    )


INTERRUPT = """
import signal
class Interrupted(nn.Module):
    def forward(self, x):
        signal.raise_signal(signal.SIGINT)
        return x
for step in range(22):
    try:
        if step == 5: net.append(Interrupted())
        train_step()
    except KeyboardInterrupt:
        print("interrupted")
        del net[3]
tell_all(net)
"""


def test_an_interrupt_in_a_window_reaches_the_program(same) -> None:
    same(LOOP + INTERRUPT)


def test_training_in_another_thread_has_no_window(same) -> None:
    done = same(
        LOOP
        + """
import threading
def run():
    for step in range(40): train_step()
thread = threading.Thread(target=run)
thread.start()
thread.join()
print([each.name for each in threading.enumerate()])
tell_all(net)
""",
        windows=0,
    )
    assert notes(done) == ["no window: the thread that trains is not the main thread"]


@pytest.mark.parametrize("first", [1, 5, 9])
def test_where_a_second_thread_runs_a_model_there_is_no_further_window(same, first: int) -> None:
    done = same(
        LOOP
        + f"""
import threading
other = nn.Linear(4, 1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
def run():
    with torch.random.fork_rng(): loss = other(torch.ones(3, 4)).sum()
    loss.backward()
    second.step()
for step in range(30):
    train_step()
    if step >= {first}:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
tell_all(net, other)
""",
        windows=1 if first == 9 else 0,
    )
    assert notes(done)[-1] == "no window: several threads run models"
    assert any(map(is_given_up, notes(done))) == (first == 5)


def test_models_that_train_in_turn_have_windows_of_the_first(same) -> None:
    done = same(
        LOOP
        + """
for step in range(STEPS): train_step()
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(STEPS): train_step()
tell_all(net)
"""
    )
    assert all(rows(window, "_foreach_lerp_") or rows(window, "lerp_") for window in windows(done))


@pytest.mark.parametrize("first", [0, 6])
def test_a_compiled_model_has_no_window_from_its_first_compilation_on(same, first: int) -> None:
    done = same(
        LOOP
        + f"""
import torch._dynamo.utils
plain = net
for step in range(30):
    if step == {first}:
        net = torch.compile(plain, backend="aot_eager")
    train_step()
print(dict(torch._dynamo.utils.counters["stats"]), dict(torch._dynamo.utils.counters["frames"]))
tell_all(plain)
""",
        windows=0,
    )
    assert "torch.compile" in notes(done)[-1]


def test_a_profiler_of_the_program_counts_what_it_counts_without(same) -> None:
    done = same(
        LOOP
        + """
from torch.profiler import ProfilerActivity, profile, schedule
def ready(found):
    print(sorted((each.key, each.count) for each in found.key_averages() if each.key.startswith("aten")))
options = {"schedule": schedule(wait=2, warmup=1, active=3), "on_trace_ready": ready}
with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
    for step in range(22):
        train_step()
        profiler.step()
tell_all(net)
""",
        windows=None,
        check=False,
    )
    assert any("profiler" in note for note in notes(done))


PRODUCT = """
weight = nn.Parameter(torch.rand(5, 7) + 0.5)
optimizer = torch.optim.SGD([weight], lr=0.01)
from torch.utils.checkpoint import checkpoint
def of(x): return {call}
for step in range(STEPS):
    optimizer.zero_grad()
    loss = {around}.sum() + (weight * torch.randn(5, 7)).sum()
    loss.backward()
    optimizer.step()
    tell(loss, weight, weight.grad)
"""


@pytest.mark.parametrize("around", ["of(weight * 1.1)", "checkpoint(of, weight * 1.1, use_reentrant=True)"])
@pytest.mark.parametrize("call", ["x.prod(1)", "x.cumprod(0)", "x.masked_fill(x > 1, x.mean())"])
def test_derivatives_that_depend_on_modes_are_made_without_one(same, call: str, around: str) -> None:
    done = same(PRODUCT.format(call=call, around=around), windows=0)
    assert "PyTorch computes the derivative of" in notes(done)[0]


@pytest.mark.parametrize("call", ["-x.max()", "-x.median()"])
def test_the_signs_of_zeros_in_gradients_of_extremes_stay(same, call: str) -> None:
    program = PRODUCT.format(call=call, around="of(weight * 1.1)").replace(
        "+ (weight * torch.randn(5, 7)).sum()", ""
    )
    done = same(program, windows=0)
    assert "PyTorch computes the derivative of" in notes(done)[0]


def test_other_fillings_and_products_have_windows(same) -> None:
    call = "x.masked_fill(x > 1, 0.5) * torch.tensor([2, 3]).prod() + x.max(1, True)[0] + x.detach().max()"
    done = same(PRODUCT.format(call=call, around="of(weight * 1.1)"))
    assert all(map(is_window, notes(done)))


def test_signs_and_products_without_derivatives_have_windows(same) -> None:
    program = PRODUCT.format(call="x * area(x.relu())", around="of(weight * 1.1)").replace(
        "def of(x)", "@torch.no_grad()\ndef area(x): return x.prod(1, True)\ndef of(x)"
    )
    done = same(
        program.replace(".backward()", ".add(nn.functional.l1_loss(weight, weight * 0.5)).backward()")
    )
    assert all(map(is_window, notes(done)))
