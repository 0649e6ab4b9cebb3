"""The program does not see the recorder's reads of tensors, and reads that were impossible are made later."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

INJECT = Path(__file__).resolve().parents[4] / "inject" / "perfwrap_recorder"

GATES = {"program/tensor_access.py", "probes/transfers/transfers.py", "dataflow/watched_operations.py"}
"""Where ``__torch_function__`` may be switched off; the second asks nothing that is recorded anywhere, the third
runs in a mode, below the program's."""

NET = """
import warnings, sys
from torch.utils.data import DataLoader
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(30_000, 4), nn.Linear(4, 2)
    def forward(self, ids):
        if ids.sum() > 3:
            ids = ids + 1
        return self.out(self.words(ids).mean(1))
ids = torch.arange(1, 65).view(2, 32) % 40 * (torch.arange(64).view(2, 32) % 32 < 20)
torch.manual_seed(0)
"""

TRACED = """
warnings.showwarning = lambda message, category, file, line, *_: print(
    category.__name__, "own file" if file == __file__ else file, line - START)
START = sys._getframe().f_lineno
net = Net()
print(torch.jit.trace(nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4)).inlined_graph)
print(torch.jit.trace(nn.Sequential(nn.Conv2d(2, 4, 1)), torch.ones(2, 2, 4, 4), check_trace=False).inlined_graph)
print(torch.jit.trace(net, ids).inlined_graph)
print(torch.jit.trace_module(net, {"forward": ids}).inlined_graph)
print(torch.jit.trace(lambda x: [each.sum() for each in DataLoader([x, x])][0], torch.ones(2)).graph)
scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
for _ in range(3): scripted(torch.ones(2, 4))
print(scripted.inlined_graph, scripted.training, scripted.eval().training)
"""

CAPTURED = """
from torch.fx.experimental.proxy_tensor import make_fx
net, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.ones(2, 4)
print(torch.fx.symbolic_trace(net).graph)
for options in ({}, {"pre_dispatch": True}):
    print(make_fx(lambda x: net(x), **options)(x).code)
for strict in (False, True):
    print(torch.export.export(net, (x,), strict=strict).graph)
net.eval()
weights = dict(net.named_parameters())
call = lambda weights, x: torch.func.functional_call(net, weights, (x,))
print(torch.func.grad(lambda w: call(w, x).sum())(weights)["0.bias"].detach())
print(torch.vmap(net)(torch.ones(3, 2, 4)).shape, torch.func.jvp(net, (x,), (x,))[1].shape)
stacked, _ = torch.func.stack_module_state([nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)])
conv = nn.Conv2d(2, 2, 1)
print(torch.vmap(lambda w: torch.func.functional_call(conv, w, (torch.ones(1, 2, 3, 3),)))(stacked).shape)
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    fake = nn.Linear(3, 3)
    print(fake(torch.ones(2, 3)).shape)
"""

WATCHED = """
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        print("function", resolve_name(function) or function.__name__)
        return function(*args, **(kwargs or {}))
class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        print("operation", function)
        return function(*args, **(kwargs or {}))
def train(steps=4):
    net, other = Net(), nn.Sequential(nn.Linear(2, 2))
    optimizers = torch.optim.SGD(net.parameters(), 0.1), torch.optim.Adam(other.parameters())
    for batch in DataLoader(ids.repeat(steps, 1), 2):
        for each in optimizers: each.zero_grad(False)
        found = other(net(batch)).sum()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        found.backward()
        for each in optimizers: each.step()
with MODE: train()
"""

OBSERVED = """
from perfwrap_recorder.program import tensor_access
import json
def observe():
    observer = torch.profiler.ExecutionTraceObserver().register_callback("trace.json")
    observer.start(); train(); observer.stop(); observer.unregister_callback()
    print([node["name"] for node in json.load(open("trace.json"))["nodes"] if "#" not in node["name"]])
observe()
tensor_access.is_watched = lambda torch: True  # nothing is asked from now on
observe()
"""

UNUSUAL = """
import copy, pickle, warnings
warnings.simplefilter("ignore")
torch.__future__.set_swap_module_params_on_conversion(True)
class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused, self.other = nn.LazyLinear(8), nn.LazyLinear(3), nn.Linear(2, 2)
    def forward(self, x): return self.used(x)
lazy = Lazy()
lazy(torch.ones(2, 4)).sum().backward()
print(lazy.other.double().weight.dtype)
net = nn.Sequential(nn.Embedding(30_000, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(20):
    net(torch.ones(2, 20).long()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(net.double()[0].weight.dtype, len(pickle.dumps(net)), copy.deepcopy(net)[1].weight.dtype)
nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
jagged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
for batch in torch.utils.data.DataLoader([nested, jagged], batch_size=None): print(nn.Linear(4, 2)(batch).is_nested)
for batch in torch.utils.data.DataLoader([torch.eye(3).to_sparse()] * 2, batch_size=None): print(batch.layout)
nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))(torch.ones(1, 4)).sum().backward()
with torch.device("meta"): print(nn.Conv2d(3, 4, 1)(torch.ones(1, 3, 4, 4)).shape)
"""

LATER = """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train():
    for batch in DataLoader(ids.repeat(4, 1), 2):
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False): train()
with torch.device("cpu"): train()
"""


def test_traced_and_scripted_graphs_are_as_without_the_recorder(same) -> None:
    done = same(NET + TRACED)
    assert done.stdout.count("TracerWarning own file") == 1


def test_captured_graphs_and_transforms_are_as_without_the_recorder(same) -> None:
    same(CAPTURED)


def test_tensors_and_parameters_of_unusual_kinds_are_used_as_without_the_recorder(same) -> None:
    facts = same(UNUSUAL).journal.facts
    assert facts["model/Lazy/parameters"] == str(4 * 8 + 8 + 2 * 2 + 2)


@pytest.mark.parametrize("mode", ["Functions()", "Operations()", "torch.device('cpu'), Functions()"])
def test_modes_see_what_they_see_without_the_recorder(same, mode: str) -> None:
    same(NET + WATCHED.replace("MODE", mode))


def test_observers_of_operations_see_none_of_ours(train) -> None:
    done = train(NET + WATCHED.replace("with MODE: train()\n", OBSERVED), check=False)
    assert done.returncode == 0, done.stderr
    bare, ours = done.stdout.splitlines()
    assert bare == ours


def test_what_could_not_be_read_is_reported_once_nothing_observes(train) -> None:
    facts = train(NET + LATER).journal.facts
    assert facts["model/Net/parameters"] == str(30_000 * 4 + 4 * 2 + 2)
    assert facts["optimizer/SGD#1/embedding_rows"] == "30000"
    assert facts["padding/Net"].split()[0] == facts["padding/loader/2"].split()[0] == "4"
    assert "padding/loader/1" not in facts


def test_only_the_gate_hides_questions_from_the_programs_modes() -> None:
    hiding = {
        str(path.relative_to(INJECT))
        for path in INJECT.rglob("*.py")
        if "changes" not in path.parts
        and re.search(r"DisableTorchFunction|_enable_record_function", path.read_text())
    }
    assert hiding == GATES
