"""Steps that are too short to be recorded one by one are still counted, every one of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the loops train with PyTorch")

LOOP = """
from importlib import import_module
from perfwrap_recorder import guard, probes
from perfwrap_recorder.journal import paused_detail, switching
open_journal()
import torch
for name in probes.PROBES:
    guard.run(name, import_module("perfwrap_recorder.probes." + name).install, torch)
torch.set_num_threads(1)
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 1_000
    def __getitem__(self, index): return torch.ones(2)
loader = torch.utils.data.DataLoader(Rows(), batch_size=None)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
def step(batch):
    optimizer.zero_grad()
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    taken.append(1)
    return loss.item()
taken = []
def go_on_until_a_rest():
    while not paused_detail.paused: step(torch.ones(2))
"""


@pytest.fixture
def run(warm_run):
    """Run a program with the recorder inside, that finds PyTorch imported."""
    return warm_run


def count(journal, kind: str) -> int:
    """Return how many spans of a kind there were, in detail and in sums."""
    return sum(number for (found, _), (number, _) in journal.totals().items() if found == kind)


@pytest.mark.torch
def test_short_steps_and_their_batches_are_all_counted_though_few_are_in_detail(run) -> None:
    done = run(LOOP + "for _ in range(4):\n    for batch in loader: step(batch)")
    read = done.journal
    assert -1 in [found.value for found in read.of("THIN")]
    assert len(read.of("OPTIMIZER")) < 2_000
    assert count(read, "OPTIMIZER") == count(read, "DATA") == 4_000
    assert len(read.of("LOADER_START")) == len(read.of("DATA_END")) == 4
    assert not [
        found for found in read.records if found.kind in ("SUM BACKWARD", "SUM ZERO_GRAD", "SUM SYNC")
    ]


@pytest.mark.torch
def test_waits_for_batches_are_summed_in_paused_detail(run) -> None:
    done = run(
        LOOP
        + """
import time
waited = 0
for _ in range(3):
    batches = iter(loader)
    while True:
        start = time.monotonic_ns()
        batch = next(batches, None)
        waited += time.monotonic_ns() - start
        if batch is None: break
        step(batch)
print(waited)
"""
    )
    totals = [total for (kind, _), (_, total) in done.journal.totals().items() if kind == "DATA"]
    assert 0.5 * int(done.stdout) < sum(totals) <= int(done.stdout)


@pytest.mark.torch
@pytest.mark.parametrize("out", [False, True], ids=["without Dynamo", "with Dynamo"])
@pytest.mark.parametrize("stays", [False, True], ids=["new iterators", "one iterator"])
def test_the_first_wait_of_an_epoch_is_by_itself_in_paused_detail_too(run, out: bool, stays: bool) -> None:
    done = run(
        ("import torch._dynamo\n" if out else "")
        + LOOP
        + f"""
import time
class Order:
    def __iter__(self):
        time.sleep(0.05)
        yield from range(1_000)
loader = torch.utils.data.DataLoader(Rows(), batch_size=None, sampler=Order())
class Again:  # an iterator that starts again, as that of persistent workers does
    def __init__(self): self.batches = iter(loader)
    def __iter__(self):
        self.batches._sampler_iter = iter(loader._index_sampler)
        yield from self.batches
epochs = Again() if {stays} else loader
for batch in loader: step(batch)
for _ in range(9):
    go_on_until_a_rest()
    for batch in epochs: step(batch)
"""
    )
    read = done.journal
    assert count(read, "DATA") == 10_000
    assert len([found for found in read.of("DATA") if found.duration >= 50_000_000]) >= 10


@pytest.mark.torch
def test_no_sum_reaches_over_the_start_or_the_end_of_an_epoch(run) -> None:
    read = run(LOOP + "for _ in range(6):\n    for batch in loader: step(batch)").journal
    turns = [found.start for found in read.of("THIN")]
    sums = [found for found in read.records if found.kind == "SUM OPTIMIZER"]
    ends = [found.start for found in read.of("DATA_END")]
    assert sums
    for found in sums:
        later = [turn for turn in turns if turn > found.start]
        assert not [end for end in ends if found.start < end and later and end + 1_000_000 < later[0]]


@pytest.mark.torch
def test_steps_that_become_long_are_recorded_in_detail_again(run) -> None:
    done = run(
        LOOP
        + """
for _ in range(3):
    for batch in loader: step(batch)
go_on_until_a_rest()
heavy = torch.ones(800, 800)
for number in range(400):
    heavy @ heavy
    step(torch.ones(2))
    if not paused_detail.paused: break
print(number)
"""
    )
    assert int(done.stdout) < 399


@pytest.mark.torch
@pytest.mark.parametrize("is_forgiven", [True, False])
def test_a_pause_goes_on_after_waits_that_are_forgiven(run, is_forgiven: bool) -> None:
    done = run(
        LOOP
        + f"""
import time
from perfwrap_recorder.journal import journal
for batch in loader: step(batch)
while paused_detail.paused: step(torch.ones(2))
go_on_until_a_rest()
batches = iter(loader)
def pause():
    time.sleep(0.3)
    if {is_forgiven}: switching.exclude(300_000_000)
pauses = 0
while paused_detail.paused and pauses < 6:
    pause()
    pauses += 1
    for _ in range(10): step(next(batches))
print(pauses)
"""
    )
    assert (int(done.stdout) == 6) == is_forgiven


@pytest.mark.torch
def test_full_collections_of_garbage_are_in_detail_in_paused_detail_too(run) -> None:
    done = run(
        LOOP
        + """
import gc
for _ in range(3):
    for batch in loader: step(batch)
go_on_until_a_rest()
for _ in range(5): gc.collect()
"""
    )
    lines = [found for found in done.journal.of("GC") if found.value == 2 and found.line]
    assert len(lines) >= 5


@pytest.mark.torch
def test_a_kill_in_paused_detail_loses_little(run) -> None:
    done = run(
        LOOP
        + """
steps = 0
for _ in range(5):
    for batch in loader:
        step(batch)
        steps += 1
print(steps, flush=True)
os.kill(os.getpid(), 9)
""",
        check=False,
    )
    counted = count(done.journal, "OPTIMIZER")
    assert int(done.stdout) - 2_000 < counted <= int(done.stdout)


@pytest.mark.torch
def test_another_threads_steps_are_recorded_while_this_ones_are_paused(run) -> None:
    done = run(
        LOOP
        + """
import threading
for _ in range(3):
    for batch in loader: step(batch)
go_on_until_a_rest()
def train_too():
    model = torch.nn.Linear(2, 1)
    other = torch.optim.Adam(model.parameters())
    for _ in range(5):
        model(torch.ones(2)).sum().backward()
        other.step()
thread = threading.Thread(target=train_too)
thread.start()
thread.join()
"""
    )
    assert (
        sum(number for (kind, name), (number, _) in done.journal.totals().items() if name.startswith("Adam"))
        == 5
    )


@pytest.mark.torch
def test_a_forked_child_is_not_paused(run) -> None:
    done = run(
        LOOP
        + """
for _ in range(3):
    for batch in loader: step(batch)
go_on_until_a_rest()
child = os.fork()
if child == 0:
    for _ in range(10): step(torch.ones(2))
    os._exit(0)
os.waitpid(child, 0)
print(len(taken))
"""
    )
    parent, child = done.journals
    assert len(child.of("BACKWARD")) == len(child.of("OPTIMIZER")) == 10
    assert count(parent, "OPTIMIZER") == int(done.stdout)


@pytest.mark.torch
def test_a_loop_without_an_optimizer_is_paused_too(run) -> None:
    done = run(
        LOOP
        + """
with torch.no_grad():
    for _ in range(6):
        for batch in loader: model(batch).sum().item()
"""
    )
    read = done.journal
    assert -1 in [found.value for found in read.of("THIN")]
    assert count(read, "FORWARD") == count(read, "DATA") == 6_000


@pytest.mark.torch
def test_a_tool_that_listens_gets_the_ranges_of_every_step(run) -> None:
    # No NVTX without CUDA: a stand-in for the nvtx package, which has the same two functions.
    listening = """
import types
pushed = []
nvtx = sys.modules["nvtx"] = types.ModuleType("nvtx")
nvtx.push_range = lambda name, domain: pushed.append(name)
nvtx.pop_range = lambda domain: None
os.environ["NVTX_INJECTION64_PATH"] = "/nowhere"
import torch
torch.version.cuda = "12.0"
"""
    done = run(
        listening
        + LOOP
        + """
for _ in range(3):
    for batch in loader: step(batch)
print({name: pushed.count(name) for name in ("data", "forward", "backward", "optimizer", "zero_grad")})
"""
    )
    found = eval(done.stdout)
    assert found.pop("data") == 3_003
    assert set(found.values()) == {3_000}
    assert not done.journal.of("THIN")


@pytest.mark.torch
@pytest.mark.parametrize(("share", "rests"), [(0.001, True), (10.0, False)])
def test_the_user_says_what_detail_may_cost(run, share: float, rests: bool) -> None:
    read = run(
        f"Settings.max_overhead = {share}\n"
        + LOOP
        + "for _ in range(2):\n    for batch in loader: step(batch)"
    ).journal
    assert bool(read.of("THIN")) is rests
    assert count(read, "OPTIMIZER") == 2_000


@pytest.mark.torch
def test_probes_are_switched_off_in_order_where_even_a_sample_of_the_steps_costs_too_much(run) -> None:
    done = run(
        "Settings.max_overhead = 0.0001\n"
        + LOOP
        + """
for _ in range(21_000): step(torch.ones(2))
while paused_detail.paused - paused_detail.switched_off: step(torch.ones(2))
for _ in range(4): step(torch.ones(2))
print(len(taken))
assert paused_detail.switched_off == {kind for _, kinds in paused_detail.SWITCH_OFF_ORDER for kind in kinds}
needed = journal_format.OPTIMIZER, journal_format.FORWARD, journal_format.BACKWARD, journal_format.DATA
assert not paused_detail.switched_off.intersection(needed)
"""
    )
    read = done.journal
    off = [found for found in read.of("COVERAGE") if "switched off" in read.texts.get(found.value, "")]
    assert [found.name for found in off] == [
        "probe/" + name
        for name in (
            [
                "zero_grad",
                "scheduler",
                "gradient_clipping",
                "transfers",
                "gradients",
                "fetching",
                "collectives",
            ]
            + ["sync"]
        )
    ]
    assert count(read, "OPTIMIZER") == int(done.stdout)
    assert max(found.start for found in read.of("ZERO_GRAD")) < off[0].start
    assert max(found.start for found in read.of("SYNC")) < off[-1].start
    assert max(found.start for found in read.of("FORWARD")) > off[-1].start


LONG = (
    "Settings.max_overhead = 0.0008\n"
    + LOOP
    + """
import torch._dynamo  # what it knows of torch's functions must also hold while detail is paused
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import thinning
watched = (
    (torch.nn.Module, "__call__"), (torch.Tensor, "item"), (torch.autograd, "backward"), (torch.Tensor, "to"),
    (torch.optim.Optimizer, "zero_grad"), (torch.utils.data._utils.fetch._MapDatasetFetcher, "fetch"),
)
def stands(): return [(id(getattr(owner, name)), hash(getattr(owner, name))) for owner, name in watched]
def codes(): return [getattr(instrument.innermost(getattr(owner, name)), "__code__", None) for owner, name in watched]
stood, ran = stands(), codes()
def go_on_until(is_rest):
    for _ in range(20_000):
        if is_rest == bool(paused_detail.counting): return
        step(torch.ones(2))
    raise AssertionError(paused_detail.counting)
"""
)
"""If even the pass-through of calls costs too much, at the steps' real length, the pauses are long."""


@pytest.mark.torch
def test_no_function_and_no_code_is_exchanged_between_pauses_and_detail(run) -> None:
    read = run(
        LONG
        + """
for _ in range(3):
    go_on_until(True)
    assert stands() == stood and codes() == ran
    assert torch.Tensor.item is torch.Tensor.__mro__[1].item
    assert torch.nn.Module.__call__ is getattr(torch.nn.Module, "_wrapped_call_impl", torch.nn.Module._call_impl)
    go_on_until(False)
    assert stands() == stood and codes() == ran
"""
    ).journal
    assert -1 in [found.value for found in read.of("THIN")]
    assert count(read, "OPTIMIZER") > 256


@pytest.mark.torch
def test_steps_of_optimizers_that_are_new_in_paused_detail_are_counted_and_end_it(run) -> None:
    done = run(
        LONG
        + """
for _ in range(6):
    go_on_until(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(1_500): step(torch.ones(2))
print(len(taken))
"""
    )
    read = done.journal
    assert count(read, "OPTIMIZER") == int(done.stdout) > 9_000
    assert len(read.of("THIN")) >= 3, "a pause began, ended and began again"


@pytest.mark.torch
def test_in_long_pauses_steps_and_batches_are_counted_all_the_same(run) -> None:
    done = run(
        LONG
        + """
for _ in range(8):
    for batch in loader: step(batch)
print(len(taken))
"""
    )
    read = done.journal
    assert count(read, "OPTIMIZER") == count(read, "DATA") == int(done.stdout) == 8_000
    assert len(read.of("DATA_END")) == 8


@pytest.mark.torch
def test_in_long_pauses_other_threads_are_recorded_and_errors_reach_the_program(run) -> None:
    done = run(
        LONG
        + """
import threading, traceback
class Broken(Rows):
    def __getitem__(self, index): raise KeyError(index)
def train_too():
    model = torch.nn.Linear(2, 1)
    other = torch.optim.Adam(model.parameters())
    for batch in torch.utils.data.DataLoader(range(5), batch_size=None):
        model(torch.ones(2)).sum().backward()
        other.step()
for _ in range(3):
    for batch in loader: step(batch)
broken = iter(torch.utils.data.DataLoader(Broken(), batch_size=None))
go_on_until(True)
thread = threading.Thread(target=train_too)
thread.start()
thread.join()
try:
    next(broken)
except KeyError as error:
    print(sum("perfwrap" in frame.filename for frame in traceback.extract_tb(error.__traceback__)))
"""
    )
    totals = done.journal.totals()
    assert sum(number for (_, name), (number, _) in totals.items() if name.startswith("Adam")) == 5
    assert done.stdout.strip() == "0"


@pytest.mark.torch
def test_in_long_pauses_nothing_is_taken_for_what_is_gone(run) -> None:
    done = run(
        LONG
        + """
import gc
for number in range(40):
    go_on_until(True)
    other = torch.optim.Adam(torch.nn.Linear(2, 1).parameters())  # often where the last one was
    other.step()
    del other
    gc.collect()
"""
    )
    totals = done.journal.totals()
    assert sum(number for (_, name), (number, _) in totals.items() if name.startswith("Adam")) == 40


@pytest.mark.torch
def test_what_another_tool_puts_there_stays(run) -> None:
    run(
        LONG
        + """
go_on_until(True)
torch.Tensor.item = theirs = lambda self: 7
go_on_until(False)
assert torch.Tensor.item is theirs and torch.ones(1).item() == 7
del torch.Tensor.item
assert torch.Tensor.item is torch.Tensor.__mro__[1].item
go_on_until(True)
go_on_until(False)
"""
    )


@pytest.mark.torch
def test_a_forked_child_has_all_its_probes(run) -> None:
    run(
        LONG
        + """
go_on_until(True)
child = os.fork()
if child == 0:
    os._exit(0 if not paused_detail.paused and not paused_detail.counting and stands() == stood else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    )


@pytest.mark.torch
def test_the_sampler_records_the_phases_in_long_pauses_too(run) -> None:
    done = run(
        LONG
        + """
from perfwrap_recorder.probes.host import stack_sampler
samples = stack_sampler.Samples(stack_sampler.get_ident())
class Looking(torch.nn.Linear):
    def forward(self, batch):
        if paused_detail.counting: samples.take()  # FORWARD
        return super().forward(batch)
class Looked(Rows):
    def __getitem__(self, index):
        if paused_detail.counting: samples.take()  # FETCH
        return super().__getitem__(index)
class Slow(torch.optim.SGD):
    def step(self, closure=None):
        if paused_detail.counting: samples.take()  # OPTIMIZER
        return super().step(closure)
looking = Looking(2, 1)
slow = Slow(looking.parameters(), 0.1)
go_on_until(True)
for batch in torch.utils.data.DataLoader(Looked(), batch_size=1):
    looking(batch.float()).sum().backward()
    slow.step()
    if not paused_detail.counting: break
samples.take()  # BETWEEN
"""
    )
    found = {record.label for record in done.journal.of("STACK")}
    assert {"forward", "fetch", "optimizer", ""} <= found


PLANNED = """
from perfwrap_recorder.journal.thinning import FIRST_STEPS, PART_OF_RUN, Thinning
thinning = Thinning(1 << 20)
slot = moment = steps = 0
rests = []
def do(many):
    global steps, moment
    steps, moment = steps + many, moment + many * STEP_NS
    assert thinning.ends_period(journal_format.OPTIMIZER, 1, many)
def rest_and_detail():
    thinning.weigh(slot, moment)
    assert thinning.begin_sums()
    rests.append(thinning.left)
    do(thinning.left)
    thinning.begin_detail(slot, moment)
    do(thinning.left)
do(FIRST_STEPS)
"""
"""Plans pauses of steps that take STEP_NS, as the journal does."""


def test_long_pauses_are_a_part_of_the_run_so_far(run) -> None:
    run(
        "STEP_NS = 100_000\n"
        + PLANNED
        + """
while steps < 1_000_000:
    slot, before = slot + 8 * 16, steps
    rest_and_detail()
    assert rests[-1] <= max(2_032, before // PART_OF_RUN)
assert thinning.is_long and 40 < len(rests) < 80 and rests[0] <= 2_032 and rests[-1] > 50_000, rests
"""
    )


def test_long_pauses_are_planned_for_ten_seconds_at_most(run) -> None:
    run(
        "STEP_NS = 4_000_000\n"
        + PLANNED
        + """
slot = 9 * FIRST_STEPS
while len(rests) < 150:
    rest_and_detail()
    slot += 9 * 16
assert thinning.is_long and rests[0] == 1_008 and max(rests) == rests[-1] == 2_500, rests
"""
    )


@pytest.mark.parametrize(("step_ms", "first"), [(15, 7 * 16), (10, 7 * 16), (5, 31 * 16), (0.3, 127 * 16)])
def test_the_cost_of_pauses_is_taken_from_that_of_detail(run, step_ms: float, first: int) -> None:
    run(
        f"STEP_NS = int({step_ms} * 1e6)\n"
        + PLANNED
        + f"""
slot = 9 * FIRST_STEPS
rest_and_detail()
assert rests == [{first}] and thinning.is_long == {step_ms <= 5}, rests
"""
    )


@pytest.mark.torch
def test_reads_of_a_loop_that_trains_nothing_pass_until_a_step_ends(run) -> None:
    read = run(
        LOOP
        + """
value = torch.ones(1)
for _ in range(30_000): value.item()
assert journal_format.SYNC in paused_detail.paused and paused_detail.throttled
step(torch.ones(2))
assert not paused_detail.throttled and journal_format.SYNC not in paused_detail.paused
value.item()
"""
    ).journal
    assert 10_000 < count(read, "SYNC") < 10_010
    assert [found.name for found in read.of("MARK")].count("calls_paused") == 1
