"""After a recording on a GPU, CUPTI is detached: Kineto does so if C's environment says it while a recording stops."""

from __future__ import annotations

import pytest

from ..probes.conftest import INSTALL

PROGRAM = """
import ctypes, os, threading, time, _thread
from perfwrap_recorder.gpu import devices, torch_profiler
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p

def seen():
    return libc.getenv(b"TEARDOWN_CUPTI"), torch_profiler._level.value == torch_profiler.SILENT

assert torch_profiler.find(torch) == ""
torch.version.cuda = {version!r}
torch_profiler._can_detach = torch_profiler._detaches(torch)
calls, stop = [], torch_profiler._disable
at_call, detached = _thread.allocate_lock(), []

def detach():  # as Kineto's thread does it: at the end of a call of CUDA, in a thread that no Python code knows
    at_call.acquire()
    time.sleep(0.005)
    detached.append(seen())

def end():
    calls.append(("stop", *seen()))
    if {detaches}:
        at_call.acquire()
        _thread.start_new_thread(detach, ())
    return stop()

def synchronize():
    calls.append(seen())
    if at_call.locked():
        at_call.release()

class Gpu:
    kind, is_chosen, is_initialized = "cuda", False, staticmethod(lambda: True)
Gpu.synchronize = staticmethod(synchronize)
devices.current = Gpu
torch_profiler._disable = end
{before}
recording = torch_profiler.Recording(())
recording._on_gpu = True
recording.start()
level = torch_profiler._level.value
torch.ones(3).sum()
recording.stop({arguments})
print(calls)
if {detaches}:
    assert detached == [(b"1", True)], detached  # nothing changes until the other thread has ended
assert seen() == (None, False), seen()
assert torch_profiler._level.value == level
assert "TEARDOWN_CUPTI" not in os.environ
assert recording.results is not None
"""


THREAD = "threading.Thread(target=time.sleep, args=(2,), daemon=True).start()"

LOADER = """
loader = torch.utils.data.DataLoader(torch.arange(64.0), batch_size=4, num_workers=1)
batches = iter(loader)
next(batches)
"""


@pytest.mark.parametrize(
    ("version", "arguments", "before", "detaches"),
    [
        ("12.6", "", "", True),
        ("13.0", "", "", True),
        ("12.4", "", "", False),
        (None, "", "", False),
        ("13.0", "False", "", False),
        ("13.0", "True, False", "", False),
        ("13.0", "", THREAD, False),
        ("13.0", "", LOADER, True),
        ("13.0", "", "torch.distributed.is_initialized = lambda: True", False),
    ],
    ids=["12.6", "13.0", "older", "CPU", "not wanted", "not last", "another thread", "loader", "ranks"],
)
def test_cupti_is_detached_where_that_is_safe(
    warm_run, version, arguments: str, before: str, detaches: bool
) -> None:
    program = PROGRAM.format(version=version, arguments=arguments, before=before, detaches=detaches)
    done = warm_run(INSTALL + "import torch\n" + program)
    assert done.returncode == 0, done.stderr
    if detaches:
        # The first wait is for the GPU's work; the others let Kineto's thread detach, still without a message.
        first, stopped, *others = eval(done.stdout)
        assert first == (None, True)
        assert stopped == ("stop", b"1", True)
        assert len(others) > 1
        assert set(others) == {(b"1", True)}
    else:
        assert "b'1'" not in done.stdout


def test_the_users_own_choice_is_left(warm_run) -> None:
    choice = "import os\nos.environ['TEARDOWN_CUPTI'] = '0'\n"
    program = PROGRAM.format(version="13.0", arguments="", before="", detaches=False).split("assert seen()")[
        0
    ]
    done = warm_run(choice + INSTALL + "import torch\n" + program + "assert seen()[0] == b'0'\n")
    assert done.returncode == 0, done.stderr
    assert "b'1'" not in done.stdout
