"""Every copy between devices is seen once, with direction, bytes and the user's line; nothing else is seen."""

from __future__ import annotations

import pytest
from perfwrap.journal_format import FROM_GPU, NON_BLOCKING, PINNED, TO_GPU

from ..away import AWAY, needs_away

torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")

COPIES = (
    ("t.to('away')", "Tensor.to", 24, TO_GPU),
    ("t.to(device='away', non_blocking=True)", "Tensor.to", 24, TO_GPU | NON_BLOCKING),
    ("t.to('away', torch.float16, True)", "Tensor.to", 12, TO_GPU | NON_BLOCKING),
    ("t.to('away', torch.float64)", "Tensor.to", 48, TO_GPU),
    ("t.to(a)", "Tensor.to", 24, TO_GPU),
    ("nn.Parameter(t).to('away')", "Tensor.to", 24, TO_GPU),
    ("a.to('cpu')", "Tensor.to", 24, FROM_GPU),
    ("a.to('cpu', torch.float64)", "Tensor.to", 24, FROM_GPU),
    ("a.cpu()", "Tensor.cpu", 24, FROM_GPU),
    ("t.expand(5, 6).to('away')", "Tensor.to", 120, TO_GPU),
    ("torch.empty(6).copy_(a)", "Tensor.copy_", 24, FROM_GPU),
    ("a.copy_(t, True)", "Tensor.copy_", 24, TO_GPU | NON_BLOCKING),
    ("a.copy_(other=t, non_blocking=True)", "Tensor.copy_", 24, TO_GPU | NON_BLOCKING),
    ("t.as_subclass(Sub).to('away')", "Tensor.to", 24, TO_GPU),
    ("with_mode(lambda: t.to('away'))", "Tensor.to", 24, TO_GPU),
    ("with_default_device(lambda: t.to('away'))", "Tensor.to", 24, TO_GPU),
    ("nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).to('away')", "Module.to", 52, TO_GPU),
)

NOTHING_MOVES = (
    "t.to('cpu')",
    "t.to(torch.float64)",
    "big.to(torch.float64)",
    "big.to('cpu', copy=True)",
    "big.cpu()",
    "big.to('meta')",
    "torch.empty(1_000_000, device='meta').copy_(big)",
    "torch.empty(1_000_000).copy_(big)",
    "nn.Linear(500, 500).to(torch.float64)",
    "nn.Linear(500, 500).to('meta')",
    "nn.Linear(500, 500).cpu()",
    "big.clone()",
)

GIVEN = """
t, big, a = torch.ones(6), torch.ones(1_000_000), make((6,))
class Sub(torch.Tensor): pass
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
def with_mode(function):
    with Mode(): return function()
def with_default_device(function):
    with torch.device("cpu"): return function()
"""


def in_functions(calls) -> str:
    """Return program text with each call in a function of its own."""
    return (
        AWAY
        + GIVEN
        + "".join(
            f"journal.mark('call_{number}')\ndef call_{number}():\n    return {call}\ncall_{number}()\n"
            for number, call in enumerate(calls)
        )
    )


@pytest.fixture(scope="module")
def seen(train):
    """What was recorded of all copies."""
    return train(in_functions(call for call, *_ in COPIES)).journal


@needs_away
def test_each_copy_is_recorded_once_with_its_bytes_and_direction(seen) -> None:
    found = [(record.label, record.value >> 8, record.value & 0xFF) for record in seen.of("TRANSFER")]
    assert found == [(label, size, bits) for _, label, size, bits in COPIES]


@needs_away
@pytest.mark.parametrize("number", range(len(COPIES)))
def test_each_copy_has_the_users_line(seen, number: int) -> None:
    place = seen.of("TRANSFER")[number].line
    functions = (f"call_{number}", f"call_{number}.<locals>.<lambda>", "<lambda>")
    assert place[0] == "program.py"
    assert place[2] in functions


@needs_away
def test_a_copy_is_no_sync(seen) -> None:
    assert not seen.of("SYNC")


@needs_away
def test_what_moves_nothing_leaves_nothing(train) -> None:
    done = train(in_functions(NOTHING_MOVES))
    assert len(done.journal.of("MARK")) == len(NOTHING_MOVES)
    assert not done.journal.of("TRANSFER")


@needs_away
def test_questions_are_not_seen_by_subclasses_and_modes(train, run_bare) -> None:
    program = """
from torch.utils._python_dispatch import TorchDispatchMode
seen = []
class Watched(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})
    @property
    def device(self):
        seen.append("device!")
        return torch.device("cpu")
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        return function(*args, **(kwargs or {}))
class Below(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))
t = torch.ones(6)
t.as_subclass(Watched).to("away")
with Mode(): t.to("away"), torch.empty(6).copy_(make((6,)))
with Below(): t.to("away"), torch.empty(6).copy_(make((6,)))
print(seen)
"""
    bare = "import torch\nfrom torch import nn\n" + AWAY + program
    done = train(AWAY + program)
    assert done.stdout == run_bare(bare)
    assert len(done.journal.of("TRANSFER")) == 5


@needs_away
def test_a_subclass_that_dispatches_itself_is_asked_nothing(train) -> None:
    done = train(
        AWAY
        + """
asked = []
class Inner(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, dispatch_device=True)
        made.inner = inner
        return made
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        asked.append(str(function))
        if "device" in str(function):
            return args[0].inner.device
        return cls(args[0].inner.to("away"))  # INNER
Inner(torch.ones(6)).to("away")
print(asked)
"""
    )
    assert "numel" not in done.stdout
    assert "pinned" not in done.stdout
    (found,) = done.journal.of("TRANSFER")
    assert (found.value >> 8, found.line[2]) == (24, "Inner.__torch_dispatch__")


@needs_away
def test_unknown_sizes_are_not_taken_for_zero(train) -> None:
    done = train("""
from perfwrap_recorder.probes.transfers import transfers
print(transfers.join_values([10 << 8 | 1, 20 << 8 | 5]), transfers.join_values([10 << 8 | 1, -1 << 8 | 1]))
print(transfers.join_values([10 << 8 | 13, 20 << 8 | 13]) & 0xFF)
measure = transfers._measure_with(torch)
print(measure(torch.eye(3).to_sparse(), torch.eye(3).to_sparse(), True) >> 8)
""")
    assert done.stdout.split() == [str(30 << 8 | TO_GPU), str(-1 << 8 | TO_GPU), "13", "-1"]


def test_directions_follow_from_the_types_of_the_devices(train) -> None:
    done = train("""
from perfwrap_recorder.probes.transfers.transfers import find_direction
for pair in ("cpu cuda", "cuda cpu", "cuda cuda", "cpu xpu", "mps cpu", "cpu meta", "meta cuda", "cpu cpu"):
    print(find_direction(*pair.split()), end=" ")
""")
    between = TO_GPU | FROM_GPU
    assert list(map(int, done.stdout.split())) == [TO_GPU, FROM_GPU, between, TO_GPU, FROM_GPU, 0, 0, 0]


def test_memory_that_became_pinned_is_recorded(train) -> None:
    # Without a GPU torch pins nothing: what a call of pin_memory leads to is tested on two plain tensors.
    done = train("""
from perfwrap_recorder.probes.transfers import transfers
finish = transfers._finish_with("Tensor.pin_memory", transfers._measure_with(torch), True)
def pin():
    finish(sys._getframe(), 10, 20_000, torch.ones(6), (torch.ones(6),), {})
pin()
""")
    (found,) = done.journal.of("TRANSFER")
    assert (found.label, found.value, found.line[2]) == ("Tensor.pin_memory", 24 << 8 | PINNED, "pin")


@needs_away
def test_what_torchs_own_loaders_and_optimizers_copy_is_theirs(train) -> None:
    done = train(
        AWAY
        + """
code = compile("def copy(t): return t.to('away')", torch.__path__[0] + "/optim/adam.py", "exec")
space = {}
exec(code, space)
space["copy"](torch.ones(3))
"""
    )
    assert not done.journal.of("TRANSFER")


def test_errors_are_those_of_torch_and_leave_no_trace(train, run_bare) -> None:
    program = """
t = torch.ones(3)
for call in (lambda: t.to("nonsense"), lambda: t.copy_(torch.ones(4)), lambda: t.copy_(), lambda: t.to(1, 2, 3),
             lambda: torch.empty(3, device="meta").cpu(), lambda: nn.Linear(2, 2).to(torch.int32)):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0], error.__context__, error.__cause__)
"""
    done = train(
        program + "from perfwrap_recorder.probes.transfers import transfers\nassert not transfers.gathering\n"
    )
    bare = "import torch\nfrom torch import nn\n" + program
    assert done.stdout == run_bare(bare)
    assert not done.journal.of("TRANSFER")


def test_warnings_of_conversions_name_the_users_line(same) -> None:
    done = same("""
import warnings
warnings.simplefilter("always")
warnings.showwarning = lambda message, kind, file, line, *rest: print(str(message)[:50], file, line)
torch.set_warn_always(True)
for odd in (torch.eye(3).to_sparse_csr(), torch.nested.nested_tensor([torch.ones(2)])):
    odd.to(torch.float64)
    odd.to(dtype=torch.float64)
torch.complex(torch.ones(1), torch.ones(1)).to(torch.float32)
torch.set_warn_always(False)
torch.complex(torch.ones(1), torch.ones(1)).to(dtype=torch.float32)
""")
    assert "Sparse CSR" in done.stdout


@needs_away
def test_threads_do_not_disturb_each_other(train) -> None:
    done = train(
        AWAY
        + """
import threading
t = torch.ones(6)
def work():
    for _ in range(50): t.to("away"), nn.Linear(2, 3).to("away")
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    )
    found = [(record.label, record.value >> 8) for record in done.journal.of("TRANSFER")]
    assert (found.count(("Tensor.to", 24)), found.count(("Module.to", 36))) == (200, 200)
