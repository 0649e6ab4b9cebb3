"""The phases of a real training loop get their GPU time, here of a simulated GPU behind torch's CPU build.

What is real is torch, the wrappers and hooks, and the loop; what is not is the GPU and that CUDA is there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

SIMULATED = f"""
from importlib import import_module
sys.path.insert(0, {str(HERE.parents[1])!r})
from perfwrap_recorder import guard, probes
from perfwrap_recorder.gpu import devices, gpu_events
from simulated_gpu import SimulatedGpu
open_journal()
import torch
from torch import nn
gpu = SimulatedGpu(index=-1)  # a tensor in the host's memory says that its device is -1
gpu.graphs = [torch.cuda.CUDAGraph]
devices.use(gpu)
probes_of = {{name: import_module("perfwrap_recorder.probes." + name) for name in probes.PROBES}}
probes_of["host_sync.sync"]._on_gpu_for = lambda torch: lambda tensor: 1
for probe in probes_of.values(): probe.install(torch)
torch.set_num_threads(1)
"""

PROGRAM = """
class Work(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        gpu.launch(2_000_000)
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        gpu.launch(3_000_000)
        return gradient
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x): return Work.apply(self.layer(x))
class Descent(torch.optim.SGD):
    def step(self, closure=None):
        gpu.launch(1_000_000)
        return super().step(closure)
net = Net()
optimizer = Descent(net.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    loss = net(torch.ones(4, 2)).square().mean()
    loss.backward()
    optimizer.step()
    return loss
def wait():
    while not gpu.is_done(): pass
"""


def simulated(make_warm_run, program: str):
    """Run a program with a simulated GPU."""
    return make_warm_run()(SIMULATED + PROGRAM + program)


@pytest.fixture(scope="module")
def done(make_warm_run):
    """A loop that waits for its GPU at the end of each of its steps."""
    return simulated(
        make_warm_run,
        """
for _ in range(10):
    loss = step()
    wait()
    loss.item()
assert not guard.failed, guard.failed
""",
    )


def test_each_phase_has_a_gpu_span_with_the_label_of_the_hosts(done) -> None:
    spans = done.journal.of("GPU")
    assert [span.label for span in spans] == ["Net", "backward", "Descent#1"] * 10
    assert [span.value & 0xFF for span in spans] == [36, 37, 38] * 10
    assert {span.line[2] for span in spans} == {"step"}


def test_phases_take_the_time_that_the_gpu_worked_on_them(done) -> None:
    spans = done.journal.of("GPU")
    # The shortest of each: the host may be held up, and then the GPU waits for it inside a phase.
    forward, backward, optimizer = (min(span.duration for span in spans[place::3]) for place in range(3))
    assert forward >= 2_000_000
    assert backward == pytest.approx(3_000_000, abs=10_000)
    assert optimizer == pytest.approx(1_000_000, abs=10_000)


def test_gpu_time_comes_after_the_hosts_and_ends_before_the_sync_returned(done) -> None:
    syncs = done.journal.of("SYNC")
    for place, sync in enumerate(syncs):
        forward, backward, optimizer = done.journal.of("GPU")[3 * place : 3 * place + 3]
        assert forward.start <= backward.start <= optimizer.start
        assert optimizer.start + optimizer.duration <= sync.start + sync.duration + 10_000
    # The host was milliseconds ahead when the backward pass was launched.
    assert max(span.value >> 36 for span in done.journal.of("GPU")[1::3]) > 1000


def test_what_a_closure_launches_is_not_the_optimizers(make_warm_run) -> None:
    done = simulated(
        make_warm_run,
        """
class Late(torch.optim.SGD):
    def step(self, closure=None):
        with torch.enable_grad(): closure()
        gpu.launch(1_000_000)
        return super().step()
late = Late(net.parameters(), lr=0.1)
def closure():
    late.zero_grad()
    loss = net(torch.ones(4, 2)).square().mean()
    loss.backward()
    return loss
for _ in range(10):
    late.step(closure)
    wait()
assert not guard.failed, guard.failed
""",
    )
    optimizers = [span for span in done.journal.of("GPU") if span.value & 0xFF == 38]
    assert len(optimizers) == len(done.journal.of("CLOSURE")) == 10
    assert min(span.duration for span in optimizers) == pytest.approx(1_000_000, abs=10_000)


def test_what_is_under_way_at_the_end_is_found_at_exit(make_warm_run) -> None:
    done = simulated(make_warm_run, "step()\nwait()\n")
    assert len(done.journal.of("GPU")) == 3


def test_a_phase_that_raises_leaves_the_next_one_right(make_warm_run) -> None:
    done = simulated(
        make_warm_run,
        """
for argument in (None, torch.ones(4, 2)):
    try: net(argument)
    except TypeError: print("raised")
wait()
assert not guard.failed, guard.failed
""",
    )
    assert done.stdout == "raised\n"
    assert len(done.journal.of("GPU")) == 1


def test_threads_share_a_device_without_harm(make_warm_run) -> None:
    done = simulated(
        make_warm_run,
        """
import threading
def infer():
    for _ in range(50): net(torch.ones(4, 2))
gpu.launch = lambda duration: None
threads = [threading.Thread(target=infer) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not guard.failed, guard.failed
""",
    )
    assert len(done.journal.of("GPU")) + int(done.journal.facts.get("gpu_time/-1/dropped", 0)) == 200


def test_a_build_without_gpu_support_has_nothing_of_it(train) -> None:
    done = train("""
from perfwrap_recorder.gpu import devices, gpu_events
from perfwrap_recorder.instrumenting import instrument
nn.Linear(1, 1)(torch.ones(1)).backward()
assert devices.current is None
print(gpu_events.api, gpu_events.begin, instrument.is_instrumented(torch.cuda.CUDAGraph.capture_begin))
""")
    import torch

    if torch.version.cuda or torch.version.hip:
        pytest.skip("this build of torch has GPU support")
    assert done.stdout == "None None False\n"
    assert not done.journal.of("GPU")


def test_a_capture_that_fails_to_begin_is_none(make_warm_run) -> None:
    done = simulated(
        make_warm_run,
        """
try: graph = object.__new__(torch.cuda.CUDAGraph)
except TypeError: graph = torch.cuda.CUDAGraph.__base__.__new__(torch.cuda.CUDAGraph)  # a build for CUDA
try: torch.cuda.CUDAGraph.capture_begin(graph)
except Exception as error: print(type(error).__name__)
print(gpu_events.captures)
""",
    )
    assert done.stdout.endswith("\nset()\n")


def test_a_program_with_gpu_support_but_no_gpu_is_left_alone(make_warm_run) -> None:
    done = simulated(make_warm_run, "gpu.initialized = False\nstep().item()\nprint(gpu.calls)\n")
    assert done.stdout == "[]\n"


def test_the_results_are_those_of_a_bare_run(make_warm_run, run_bare) -> None:
    program = "torch.manual_seed(0)\nnet = Net()\noptimizer = Descent(net.parameters(), lr=0.1)\n"
    program += "for _ in range(5): print(step().item())\n"
    bare = "import torch\nfrom torch import nn\nclass gpu: launch = abs\n" + PROGRAM + program
    recorded = simulated(make_warm_run, program).stdout
    assert recorded == run_bare(bare)
