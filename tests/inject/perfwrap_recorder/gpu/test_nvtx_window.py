"""The NVTX range around some steps: it begins and ends once, between steps, and only where it is asked for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the loops train with PyTorch")

TRAIN = """
import types
from importlib import import_module
from perfwrap_recorder import guard, probes
calls = []
if {has_nvtx}:
    # No NVTX without CUDA: a stand-in for the nvtx package, which has the same two functions.
    nvtx = sys.modules["nvtx"] = types.ModuleType("nvtx")
    nvtx.push_range = lambda name, domain: calls.append("+" + name)
    nvtx.pop_range = lambda domain: calls.append("-")
else:
    sys.modules["nvtx"] = None
os.environ["NVTX_INJECTION64_PATH"] = "/nowhere"
os.environ["PERFWRAP_NVTX_WINDOW"] = "{window}"
open_journal()
import torch
torch.version.cuda = "12.0"
torch.cuda.nvtx.range_push = lambda name: calls.append("+" + name)
torch.cuda.nvtx.range_pop = lambda: calls.append("-")
torch.cuda.nvtx.range_start = lambda name: calls.append("begin " + name) or 7
torch.cuda.nvtx.range_end = lambda handle: calls.append("end %d" % handle)
import_module("perfwrap_recorder.probes.loop.optimizer").install(torch)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
def steps(count):
    for _ in range(count):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def run(warm_run):
    """Run a program with the recorder inside, that finds PyTorch imported."""
    return warm_run


def train(has_nvtx: bool, window: str, code: str) -> str:
    """Return a program that trains and prints its calls of NVTX."""
    return TRAIN.format(has_nvtx=has_nvtx, window=window) + code + "\nprint(calls)\nassert not guard.failed\n"


STEP = ["+optimizer", "-"]


@pytest.mark.torch
def test_the_range_lies_around_whole_steps(run) -> None:
    done = run(train(True, "2:3", "steps(7)"))
    calls = eval(done.stdout)
    assert calls == [*STEP * 2, "+perfwrap_window", *STEP * 3, "-", *STEP * 2]
    assert [mark.name for mark in done.journal.of("MARK")].count("nvtx_window") == 2


@pytest.mark.torch
def test_without_the_nvtx_package_it_is_a_range_of_the_process(run) -> None:
    calls = eval(run(train(False, "0:2", "steps(5)")).stdout)
    assert calls == [*STEP, "begin perfwrap_window", *STEP * 2, "end 7", *STEP * 2]


@pytest.mark.torch
def test_a_silent_nvtx_package_is_passed_over(run) -> None:
    # nvtx 0.2.17 gives such a domain where the tool is too old for it.
    silent = "class DummyDomain: pass\n    nvtx.get_domain = lambda name: DummyDomain()\n"
    program = train(True, "1:1", "steps(3)").replace("\nelse:\n", "\n    " + silent + "else:\n")
    assert eval(run(program).stdout) == [*STEP, "begin perfwrap_window", *STEP, "end 7", *STEP]


@pytest.mark.torch
def test_without_a_window_there_are_only_the_steps(run) -> None:
    code = """
from perfwrap_recorder.gpu import nvtx_window
steps(3)
for window in ("2", "2:0", "a:b", "-1:3", ":"):
    os.environ[nvtx_window.VARIABLE] = window
    assert nvtx_window.counting(torch, steps) is steps
"""
    assert eval(run(train(True, "", code)).stdout) == STEP * 3


@pytest.mark.torch
def test_steps_of_other_threads_do_not_count(run) -> None:
    code = """
import threading
steps(1)
other = threading.Thread(target=steps, args=(5,))
other.start()
other.join()
steps(1)
"""
    calls = eval(run(train(True, "1:1", code)).stdout)
    assert calls == [*STEP, "+perfwrap_window", *STEP * 6, "-"]
