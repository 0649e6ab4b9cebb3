"""Runs a program on a stream of PyTorch's test device openreg that does work of a known time.

openreg's operations compute in the thread that calls them; only what is launched through its C++ interface runs on its
streams, later. So ``torch.openreg.launch(name, seconds)`` launches sleep there, and ``torch.openreg.done`` is what was
done, as on the queued device. ``openreg_work.py LIBRARY PROGRAM ARGUMENTS...``; ``SOURCE`` is that of the library.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = """
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

struct orStream;
namespace openreg {
int addTaskToStream(orStream* stream, std::function<void()> task);
}

static std::mutex mutex;
static std::vector<long long> done;

static long long now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

extern "C" void work(orStream* stream, double seconds) {
  long long launched = now();
  openreg::addTaskToStream(stream, [=] {
    long long start = now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    std::lock_guard<std::mutex> lock(mutex);
    done.insert(done.end(), {launched, start, now()});
  });
}

extern "C" long long take(long long* target, long long most) {
  std::lock_guard<std::mutex> lock(mutex);
  for (long long i = 0; i < most && i < (long long)done.size(); i++) target[i] = done[i];
  return done.size();
}
"""


class Done:
    """What was done: the name, the launch and the time by CLOCK_MONOTONIC, in ns."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def __iter__(self) -> Iterator[tuple[str, int, int, int]]:
        size = self.library.take(None, 0)
        numbers = (ctypes.c_longlong * size)()
        self.library.take(numbers, size)
        for place in range(0, size, 3):
            launched, start, end = numbers[place : place + 3]
            yield "work", launched, start, end


def main() -> None:
    """Make a stream the current one, and run the program."""
    import torch
    import torch_openreg  # type: ignore[import-not-found]

    runtime = ctypes.CDLL(str(Path(torch_openreg.__file__).parent / "lib" / "libopenreg.so"))
    library = ctypes.CDLL(sys.argv[1])
    library.work.argtypes = ctypes.c_void_p, ctypes.c_double
    library.take.argtypes = ctypes.c_void_p, ctypes.c_longlong
    library.take.restype = ctypes.c_longlong
    handle = ctypes.c_void_p()
    assert runtime.orStreamCreate(ctypes.byref(handle)) == 0
    kind = torch.Stream("openreg").device_type
    assert handle.value is not None
    torch.accelerator.set_stream(torch.Stream(stream_id=handle.value, device_index=0, device_type=kind))
    done = Done(library)
    torch.openreg.launch = lambda name, seconds: library.work(handle, seconds)  # type: ignore[attr-defined]
    torch.openreg.done = done  # type: ignore[attr-defined]

    def write() -> None:
        torch.accelerator.synchronize()
        Path(os.environ["QUEUED_DEVICE_TRUTH"]).write_text(json.dumps(list(done)))

    atexit.register(write)
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
