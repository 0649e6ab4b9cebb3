"""When windows open, close and are given up, what they release, and that their own errors harm nothing."""

from __future__ import annotations

import pytest

from .conftest import is_window, notes, rows, windows
from .test_same_programs import LOOP, MODES, SHOWS_NO_FRAMES

BACKWARD = 11
"""The place of the number of the backward pass in the row of an operation; -1 in a forward pass."""
PLAIN = LOOP + "for step in range(STEPS): train_step()\ntell_all(net)\n"


def test_windows_are_three_whole_steps_twice(same) -> None:
    done = same(PLAIN)
    first, second = notes(done)
    assert first.startswith("operations of steps 5 to 7: tools/operations-")
    assert second.startswith("operations of steps 12 to 14: tools/operations-")
    for window in windows(done):
        assert len(window["ends"]) == 3
        assert len(rows(window, "addmm")) == 2 * 3


def test_the_backward_of_a_derivative_belongs_to_the_operation_of_the_derivative(same) -> None:
    done = same(
        LOOP
        + """
for step in range(STEPS):
    optimizer.zero_grad()
    x = torch.randn(3, 4, requires_grad=True)
    y = net(x)
    (slope,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
    loss = slope.pow(2).mean()
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net)
"""
    )
    for window in windows(done):
        derived = set(window["nodes"].values())
        assert any(window["operations"][number][BACKWARD] >= 0 for number in derived), (
            "no derivative has a node"
        )


@pytest.mark.parametrize("first", [0, 5])
def test_a_step_of_an_optimizer_inside_of_backward_is_no_boundary(same, first: int) -> None:
    done = same(
        LOOP
        + f"""
for step in range({first}): train_step()
net[0].weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
for step in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.randn(3, 4)).pow(2).mean()
    loss.backward()
    tell(loss)
tell_all(net)
""",
        windows=0,
    )
    why = (
        "window given up: the program ended" if first else "no window: the program ended after too few steps"
    )
    assert notes(done)[0] == why


@pytest.mark.parametrize("first", [5, 40])
def test_steps_of_an_optimizer_are_watched_also_if_many_passes_without_one_come_first(
    same, first: int
) -> None:
    done = same(
        LOOP
        + f"""
for _ in range({first}): tell(net(torch.randn(3, 4)))
for step in range(STEPS): train_step()
tell_all(net)
""",
        windows=2 if first == 5 else 4,
    )
    assert [note.partition(":")[0] for note in notes(done)[-2:]] == [
        "operations of steps 5 to 7",
        "operations of steps 12 to 14",
    ]
    assert len(windows(done)) == 2
    assert all(rows(window, "_foreach_lerp_") or rows(window, "lerp_") for window in windows(done))


def test_after_the_windows_nothing_of_them_is_left(train) -> None:
    done = train(
        LOOP
        + """
import gc, weakref
gc.disable()
kept = []
make = operation_mode.make
def noting(torch, watched):
    mode = make(torch, watched)
    kept.extend([weakref.ref(watched), weakref.ref(mode), weakref.ref(watched.values)])
    return mode
operation_mode.make = noting
before = dict(vars(torch.Tensor))
for step in range(STEPS): train_step()
assert windows.is_over() and len(kept) == 6
assert [each() for each in kept] == [None] * 6
assert vars(torch.Tensor).keys() == before.keys()
assert torch._C._len_torch_dispatch_stack() == 0 and not torch.utils._python_dispatch.is_in_torch_dispatch_mode()
from perfwrap_recorder.instrumenting import tensor_methods
assert not tensor_methods._listeners
"""
    )
    assert len(windows(done)) == 2


def test_dead_storages_are_forgotten_at_once(train) -> None:
    train(
        LOOP
        + """
most = []
prune = tensor_values.TensorValues.prune
def counting(values):
    prune(values)
    most.append(len(values._held))
tensor_values.TensorValues.prune = counting
for step in range(STEPS):
    x = torch.ones(3, 4)
    for _ in range(300): x = x + 1
    train_step(x)
assert len(most) > 6 * 300, len(most)
assert max(most) < 100, max(most)
"""
    )


def test_no_tensor_lives_longer(same) -> None:
    same(
        LOOP
        + """
import weakref
for step in range(STEPS):
    train_step()
    x = torch.ones(1000)
    y = x * 2
    gone = weakref.ref(x), weakref.ref(y)
    del x, y
    print([each() for each in gone])
tell_all(net)
"""
    )


def test_dynamo_compiles_what_it_compiles_without(same) -> None:
    same(
        LOOP
        + """
import torch._dynamo
from torch._dynamo.testing import CompileCounter
counter = CompileCounter()
@torch._dynamo.optimize(counter)
def more(x):
    y = torch.sin(x) * 2
    torch._dynamo.graph_break()
    return (y + 1).relu()
for step in range(STEPS):
    train_step()
    if step > 4: tell(more(torch.randn(7)))
print(counter.frame_count, counter.op_count)
tell_all(net)
""",
        windows=0,
    )


def test_the_compiler_is_not_imported(train) -> None:
    done = train(
        """
weight = torch.ones(2, requires_grad=True)
for _ in range(STEPS):
    (weight * 2).sum().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
print("torch._dynamo" in sys.modules)
""",
        fresh=True,
    )
    assert done.stdout == "False\n"
    assert sum(map(is_window, notes(done))) == 2


def test_batch_norm_writes_its_running_statistics(train) -> None:
    done = train(
        """
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(STEPS):
    net(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    for window in windows(done):
        found = rows(window, "native_batch_norm")
        assert len(found) == 3
        for row in found:
            assert row[6][2::3].count(1) == 2  # written
            assert len(row[4]) == 2 * 3  # input, weight and bias


READS = {
    "numpy": "x.numpy()",
    "tolist": "x.tolist()",
    "data_ptr": "x.data_ptr()",
    "untyped_storage": "x.untyped_storage()",
    "__dlpack__": "numpy.from_dlpack(x)",
    "storage": "x.storage()",
    "numpy ": "numpy.asarray(x)",
}


@pytest.mark.parametrize("name", READS)
def test_a_read_of_memory_is_a_row(train, name: str) -> None:
    done = train(
        LOOP
        + f"""
import warnings
warnings.simplefilter("ignore")
for step in range(STEPS):
    train_step()
    x = torch.ones(3) * 2
    {READS[name]}  # HERE
"""
    )
    wanted = {"storage": "untyped_storage"}.get(name, name.strip())
    line = next(
        at
        for at, text in enumerate((done.run_dir / "program.py").read_text().splitlines(), 1)
        if text.endswith("# HERE")
    )
    for window in windows(done):
        found = [row for row in rows(window, wanted) if window["stacks"][row[1]][0][1] == line]
        assert len(found) >= 3
        assert all(len(row[4]) == 2 and row[3] & (1 << 11) for row in found)


def test_arguments_that_hash_the_same_are_distinguished(train) -> None:
    done = train(
        LOOP
        + "for step in range(STEPS):\n    train_step()\n    x = torch.ones(3, 3)\n    x.sum(-1), x.sum(-2)\n"
    )
    for window in windows(done):
        scalars = [row[5] for row in rows(window, "sum") if row[11] == -1]  # outside of backward
        assert len(set(scalars)) == 2


def test_the_dimension_of_a_sort_is_written(train) -> None:
    done = train(
        LOOP
        + """
for step in range(STEPS):
    train_step()
    x = torch.randn(2, 3, 4)
    x.sort(), x.argsort(1), x.sort(dim=0, descending=True), x.sort(stable=True, dim=1)
"""
    )
    for window in windows(done):
        assert list(window["sorts"].values()) == [-1, 1, 0, 1] * 3
        names = [window["functions"][window["operations"][int(at)][0]][0] for at in window["sorts"]]
        assert names == ["sort"] * 12


GIVEN_UP = {
    "too many operations": ("watched_operations.MAX_OPERATIONS = 20", "the steps are too long"),
    "too much time": ("watched_operations.MAX_NS = 0", "the steps are too long"),
    "an error in the handler": (
        "def fail(*more): raise ValueError('no')\nwatched_operations.Watched._row = fail",
        "perfwrap's own code failed: ValueError: no",
    ),
    "an error at the end of a step": (
        "def fail(*more): raise ValueError('no')\nwatched_operations.Watched.step_ended = fail",
        "perfwrap's own code failed: ValueError: no",
    ),
    "an error in writing": (
        "def fail(*more): raise ValueError('no')\nwindows._write = fail",
        "its file could not be written",
    ),
}


@pytest.mark.parametrize("how", GIVEN_UP)
def test_a_window_is_given_up_and_the_program_goes_on(same, how: str) -> None:
    before, why = GIVEN_UP[how]
    done = same(
        PLAIN + "print(torch._C._len_torch_dispatch_stack())\n",
        windows=0,
        before=before + "\n",
        is_whole=False,
    )
    assert notes(done)[0] == "window given up: " + why
    assert not windows(done)


def test_an_error_of_a_read_harms_nothing(same) -> None:
    before = "def fail(*more): raise ValueError('no')\nwatched_operations.Watched.read = fail\n"
    same(
        LOOP
        + "for step in range(STEPS):\n    train_step()\n    print(torch.ones(2).numpy())\ntell_all(net)\n",
        before=before,
        is_whole=False,
        windows=None,
    )


def test_a_finalizer_that_reads_a_tensor_while_a_row_is_written_does_not_hang(same) -> None:
    before = """
held = torch.ones(3)
prune = tensor_values.TensorValues.prune
def collect(values):
    held.numpy()
    prune(values)
tensor_values.TensorValues.prune = collect
"""
    done = same(PLAIN, windows=0, before=before)
    assert notes(done)[0] == "window given up: the program read a tensor while a row was written"


def test_an_interrupt_while_a_row_is_written_reaches_the_program(same) -> None:
    before = """
prune = tensor_values.TensorValues.prune
def interrupt(values):
    if phases[-1] == "forward":
        phases.append("interrupted")
        raise KeyboardInterrupt
    prune(values)
tensor_values.TensorValues.prune = interrupt
"""
    program = """
phases = [""]
for step in range(25):
    if step == 5: phases.append("forward")
    state = torch.get_rng_state()
    try:
        loss = net(torch.ones(3, 4)).pow(2).mean()
    except KeyboardInterrupt as error:
        import traceback
        files = [each.filename for each in traceback.extract_tb(error.__traceback__)]
        assert not SHOWS_NO_FRAMES or all(file == __file__ or "/torch/" in file for file in files), files
        torch.set_rng_state(state)
        loss = net(torch.ones(3, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
tell_all(net)
""".replace("SHOWS_NO_FRAMES", str(SHOWS_NO_FRAMES))
    done = same(LOOP + program, before=before)
    assert notes(done)[0].startswith("window given up: a signal handler of the program")


def test_own_tensor_work_is_not_observed(same) -> None:
    before = """
from perfwrap_recorder.dataflow import value_sums
value_sums.ValueSums._on_cpu = value_sums.ValueSums._elsewhere
"""
    done = same(
        LOOP
        + MODES
        + """
constant = torch.ones(3, 4)
for step in range(STEPS):
    train_step()
    with Dispatches(), Functions(), torch.enable_grad():
        y = (constant * 2).sum()
        z = torch.tensor([1.0, 2.0]) * y
    print(y.requires_grad, z.grad_fn)
print(seen)
tell_all(net)
""",
        before=before,
    )
    assert any(window["value_sums"] for window in windows(done))


def test_old_versions_have_no_window_where_the_compiler_may_run(train) -> None:
    before = "window_obstacles.is_ignored_by_compiler = lambda torch: False\n"
    done = train(
        LOOP
        + "other = torch.compile(lambda x: x + 1, backend='eager')\nfor step in range(40): train_step()\n",
        before=before,
    )
    (note,) = notes(done)
    assert note.startswith("no window: torch.compile may be used, and its compiler does not ignore")


def test_a_program_that_ends_in_a_window_says_so(train) -> None:
    done = train(LOOP + "for step in range(6): train_step()\n")
    assert notes(done)[0] == "window given up: the program ended"


def test_steps_that_end_in_inference_mode_have_no_window(same) -> None:
    done = same(
        LOOP
        + """
for step in range(40):
    loss = net(torch.randn(3, 4)).pow(2).mean()
    loss.backward()
    with torch.inference_mode():
        optimizer.step()
        optimizer.zero_grad()
    tell(loss)
tell_all(net)
""",
        windows=0,
    )
    assert notes(done) == ["no window: the step ends in inference mode"]


def test_an_evaluation_after_a_window_that_was_given_up_is_not_watched(train) -> None:
    train(
        LOOP
        + """
watched_operations.MAX_OPERATIONS = 20
for step in range(4): train_step()
with torch.no_grad(): net(torch.ones(3, 4))
for _ in range(10): torch.ones(3) * 2
assert torch._C._len_torch_dispatch_stack() == 1
for _ in range(10): torch.ones(3) * 2
with torch.no_grad(): net(torch.ones(3, 4))
assert torch._C._len_torch_dispatch_stack() == 0
"""
    )
