"""Only outermost calls of modules are recorded, under the name that means something to the user."""

from __future__ import annotations

import pytest


def test_wrappers_are_named_after_what_they_wrap(train) -> None:
    done = train("""
class Net(nn.Module):
    def forward(self, x): return x
nn.DataParallel(Net())(torch.ones(1))
torch.compile(Net(), backend="eager")(torch.ones(1))
""")
    assert [span.label for span in done.journal.of("FORWARD")] == ["Net", "Net"]


def test_an_error_inside_does_not_hide_the_next_call(train) -> None:
    done = train("""
class Net(nn.Module):
    def forward(self, x):
        if x is None: raise ValueError("none")
        return x
net = Net()
for value in (None, 1):
    try: net(value)
    except ValueError as error: print(error.__context__)
""")
    assert done.stdout == "None\n"
    assert len(done.journal.of("FORWARD")) == 1


def test_a_failing_forward_shows_the_frames_of_a_bare_one(train, run_bare) -> None:
    pytest.importorskip("torch", "2.1", reason="before torch 2.1 the wrapper is one frame more")
    program = """
import traceback
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
    def forward(self, x): return self.inner(x)
try: Net()(torch.ones(3))
except RuntimeError as error:
    print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
"""
    assert train(program).stdout == run_bare("import torch\nfrom torch import nn\n" + program)


def test_modules_in_threads_are_outermost_there(train) -> None:
    done = train("""
import threading
class Net(nn.Module):
    def forward(self, x):
        worker = threading.Thread(target=nn.Identity(), args=(x,))
        worker.start()
        worker.join()
        return x
Net()(torch.ones(1))
""")
    spans = done.journal.of("FORWARD")
    assert [span.label for span in spans] == ["Net", "Identity"]
    assert spans[0].thread != spans[1].thread


def test_the_models_facts_are_asked_for_out_of_sight_of_the_programs_modes(train) -> None:
    done = train("""
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function)
        return function(*args, **(kwargs or {}))
seen = []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))
    def forward(self, x): return x
net = Net()
with Mode(): net(1)
print(len(seen))
""")
    assert done.stdout == "0\n"
    assert done.journal.facts["model/Net/parameters"] == "6"


def test_a_parameter_whose_own_attributes_raise_is_described_by_those_of_torch(train) -> None:
    done = train("""
class Odd(nn.Parameter):
    @property
    def device(self): raise RuntimeError("not now")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.odd = Odd(torch.ones(1))
    def forward(self, x): return x
Net()(1)
nn.Linear(1, 1)(torch.ones(1))
""")
    assert done.journal.facts["model/Net/devices"] == "cpu 1"
    assert [span.label for span in done.journal.of("FORWARD")] == ["Net", "Linear"]
