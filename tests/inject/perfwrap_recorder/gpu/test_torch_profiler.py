"""After a recording on a GPU, CUPTI is detached: Kineto does so if C's environment says it while a recording stops."""

from __future__ import annotations

import pytest

from ..probes.conftest import INSTALL

PROGRAM = """
import ctypes, os, threading
from perfwrap_recorder.gpu import torch_profiler
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p

def seen():
    return libc.getenv(b"TEARDOWN_CUPTI"), torch_profiler._level.value == torch_profiler.SILENT

assert torch_profiler.find(torch) == ""
torch.version.cuda = {version!r}
torch_profiler._can_detach = torch_profiler._detaches(torch)
calls, stop = [], torch_profiler._disable
torch._C._cuda_synchronize = lambda: calls.append(seen())
torch_profiler._disable = lambda: (calls.append(("stop", *seen())), stop())[1]
recording = torch_profiler.Recording(())
recording._on_gpu = True
recording.start()
level = torch_profiler._level.value
torch.ones(3).sum()
recording.stop({arguments})
print(calls)
assert seen() == (None, False), seen()
assert torch_profiler._level.value == level
assert "TEARDOWN_CUPTI" not in os.environ
assert recording.results is not None
"""


@pytest.mark.parametrize(
    ("version", "arguments", "detaches"),
    [
        ("12.6", "", True),
        ("13.0", "", True),
        ("12.4", "", False),
        (None, "", False),
        ("13.0", "False", False),
        ("13.0", "True, False", False),
    ],
)
def test_cupti_is_detached_where_that_is_safe(warm_run, version, arguments: str, detaches: bool) -> None:
    done = warm_run(INSTALL + "import torch\n" + PROGRAM.format(version=version, arguments=arguments))
    assert done.returncode == 0, done.stderr
    if detaches:
        # The first wait is for the GPU's work; the others let Kineto's thread detach, still without a message.
        first, stopped, *others = eval(done.stdout)
        assert first == (None, True)
        assert stopped == ("stop", b"1", True)
        assert others
        assert set(others) == {(b"1", True)}
    else:
        assert "b'1'" not in done.stdout


def test_the_users_own_choice_is_left(warm_run) -> None:
    choice = "import os\nos.environ['TEARDOWN_CUPTI'] = '0'\n"
    program = PROGRAM.format(version="13.0", arguments="").split("assert seen()")[0]
    done = warm_run(choice + INSTALL + "import torch\n" + program + "assert seen()[0] == b'0'\n")
    assert done.returncode == 0, done.stderr
    assert "b'1'" not in done.stdout
