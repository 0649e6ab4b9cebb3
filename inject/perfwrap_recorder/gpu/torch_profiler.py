"""One recording of torch's own profiler that does not change the program's state, output and own profiling.

``torch.profiler`` is not used, but the functions below it, so that nothing is read back into Python and
``torch.autograd.profiler._is_profiler_enabled``, which compiled code reads, does not change.

Kineto, the library that does the work, logs to standard error when it starts and stops. Its log level is set
during our own calls and then restored; if it cannot be found, nothing is recorded. Once used, it keeps a thread of
its own, in C++.

After a recording, Kineto leaves CUPTI, the driver's profiling library, attached to the process, which makes every later
launch slower: on an H200, steps of launch-bound loops took 13 to 27 % longer. It detaches CUPTI at the next call of
CUDA if TEARDOWN_CUPTI is 1 in C's environment (Kineto's CuptiActivityApi::teardownContext), so the variable has
this value while a recording stops; ``os.environ`` does not show it.
"""

from __future__ import annotations

import gc
import os
import sys
from _thread import get_ident
from time import sleep

from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices

MIN_VERSION = (2, 4)
"""Traces of older versions cannot be mapped to another clock exactly, and they log more to standard error."""

SILENT = 99
LEVEL = "_ZN9libkineto6Logger14severityLevel_E"
"""The symbol of Kineto's log level in torch's library."""

ROOM_BYTES = 1 << 30
"""Minimum free disk space for an export: Kineto prints an error if the disk is full."""

DETACH = "TEARDOWN_CUPTI"
DETACHES_SINCE = (12, 6)
"""Older CUPTI crashes if it is used again after it was detached and the program uses CUDA graphs (pytorch #146604)."""
HARMLESS = ("TMonitor", "QueueFeederThread")
"""Threads that do not call CUDA, by class or name: tqdm's, and those that send indices to a loader's workers."""
DETACH_TRIES, DETACH_S = 20, 0.001
"""How often, and how long, a call of CUDA that lets CUPTI detach is waited for."""

DETAILS = ("shapes", "memory", "stack", "flops")

torch = None  # the module, once the probe has found all that is needed
_prepare = _enable = _disable = None
_level = None
_can_detach = False


def find(found):
    """Return why this torch cannot be used, or "" if it can."""
    global torch, _prepare, _enable, _disable, _level, _can_detach
    torch, profiler = found, found.autograd.profiler
    if _version(found) < MIN_VERSION:
        return "this PyTorch is older than 2.4"
    if not found.autograd.kineto_available():
        return "this PyTorch is built without Kineto"
    names = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    _prepare, _enable, _disable = (_unwrapped(getattr(profiler, name)) for name in names)
    _level = _find_level(found)
    if _level is None:
        return "what this PyTorch's profiler prints could not be kept from the program's output"
    _can_detach = _detaches(found)
    return ""


def is_enabled():
    """Return whether a torch profiler is active in this thread."""
    return torch.autograd._profiler_enabled()


def is_enabled_elsewhere():
    """Return whether the program's own profiler is active in any thread, as far as torch's classes show."""
    return torch.autograd.profiler._is_profiler_enabled


def is_in_backward():
    """Return whether a backward pass runs in this thread: starts and stops during it are undone at its end."""
    ask = getattr(torch._C, "_current_graph_task_id", None)  # since PyTorch 2.1
    return ask is not None and ask() != -1


def has_started_gpu():
    """Return whether the program has started a device whose work this build's profiler records.

    A device that is no part of PyTorch has a profiler of its own, or none.
    """
    if not devices.is_started() or devices.current.is_chosen:
        return False
    return devices.current.kind == "cuda" or _activity() in _supported()


def _activity():
    """Return the profiler's name for the work of the device; None if it has none."""
    return getattr(torch.autograd.profiler.ProfilerActivity, devices.current.kind.upper(), None)


def _supported():
    return torch.autograd._supported_activities()


class Recording:
    """One recording, started and stopped by the same thread; only ``save`` reads its ``results``."""

    def __init__(self, details, only_kernels=False):
        profiler = torch.autograd.profiler
        self._only_kernels = only_kernels
        self._activities = set() if only_kernels else {profiler.ProfilerActivity.CPU}
        self._on_gpu = has_started_gpu() and _activity() in _supported()
        if self._on_gpu:
            self._activities.add(_activity())
        flags = [name in details and not only_kernels for name in DETAILS]
        flags[0] = flags[0] or flags[3]  # as torch.profiler does: operations are counted from shapes
        self._config = profiler.ProfilerConfig(
            profiler.ProfilerState.KINETO, *flags, False, _make_options(profiler, only_kernels), ""
        )
        self._step = None
        self.results = None
        self.stop_ns = 0
        """The time that stopping took, without the wait for the GPU."""

    def start(self):
        """Start; if this raises, nothing is recorded."""
        before = _level.value
        _level.value = SILENT
        try:
            _prepare(self._config, self._activities)
            if _level.value != SILENT:  # Kineto was just initialised: this is its own level
                before, _level.value = _level.value, SILENT
            _enable(self._config, self._activities)
        finally:
            _level.value = before

    def take_back(self):
        """Start a Kineto session again that another thread's has replaced: stopping none would crash the program."""
        before, _level.value = _level.value, SILENT
        try:
            _prepare(self._config, self._activities)
        finally:
            _level.value = before

    def mark_step(self, number):
        """Mark the beginning of a step in the recording, and the end of the one before; None marks only the end."""
        self._step = None  # the mark ends when its last reference goes
        if number is not None and not self._only_kernels and not _has_modes():
            self._step = torch.ops.profiler._record_function_enter_new("ProfilerStep#%d" % number, None)

    def stop(self, wanted=True, is_last=True):
        """Stop; the recording is in ``results``. If it is wanted, wait for the GPU; after the last, detach CUPTI."""
        self._step = None
        began = now()
        before, _level.value = _level.value, SILENT
        detaches = self._on_gpu and wanted and is_last and _may_detach()
        threads = _find_threads()
        try:
            if wanted and self._on_gpu:
                _unwrapped(devices.current.synchronize)()
                began = now()
            if detaches:
                os.putenv(DETACH, "1")
        finally:
            try:
                self.results = _disable()
                self.stop_ns = now() - began
                if detaches:
                    _wait_until_detached(threads)
            finally:
                if detaches:
                    os.unsetenv(DETACH)
                _level.value = before

    def export(self, folder, name):
        """Write the recording to a file of that folder; return whether that worked."""
        signal = sys.modules["_signal"]
        if signal.getsignal(signal.SIGXFSZ) != signal.SIG_IGN:
            return False  # a limit of file sizes must not become a signal
        path = "%s/%s.part" % (folder, name)
        if not _can_write(folder, path):
            return False
        before, _level.value = _level.value, SILENT
        try:
            self.results.save(path)
        finally:
            _level.value = before
        os.rename(path, "%s/%s" % (folder, name))
        return True

    def add_rank(self):
        """Add the rank to the file: readers of several files need it."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            text = '{"backend": "%s", "rank": %d, "world_size": %d}'
            words = text % (distributed.get_backend(), distributed.get_rank(), distributed.get_world_size())
            torch.autograd._add_metadata_json("distributedInfo", words)


def _make_options(profiler, only_kernels):
    """Return the profiler's experimental options: without operations, nothing needs to be related to them."""
    if only_kernels:
        try:
            return profiler._ExperimentalConfig(disable_external_correlation=True)
        except TypeError:  # versions of PyTorch without this option
            pass
    return profiler._ExperimentalConfig()


def _detaches(found):
    """Return whether CUPTI can be detached from this torch's processes after a recording."""
    version = getattr(found.version, "cuda", None)
    return bool(version) and _numbers(version) >= DETACHES_SINCE and DETACH not in os.environ


def _may_detach():
    """Return whether to detach CUPTI now.

    Kineto does it at the end of any thread's call of CUDA, and would do it twice if two threads ended one at once. So
    no other thread may call CUDA: none of Python (one that pins memory, say), and none of NCCL.
    """
    distributed = torch.distributed
    if (
        not _can_detach
        or DETACH in os.environ
        or (distributed.is_available() and distributed.is_initialized())
    ):
        return False
    threading = sys.modules.get("threading")
    alive = {} if threading is None else threading._active.copy()
    alive.pop(get_ident(), None)
    return all(
        type(other).__name__ in HARMLESS or vars(other).get("_name") in HARMLESS for other in alive.values()
    )


def _wait_until_detached(before):
    """Call CUDA until the thread that detaches CUPTI has ended: it does so at the end of a call."""
    started = _find_threads() - before
    for _ in range(DETACH_TRIES):
        _unwrapped(devices.current.synchronize)()
        sleep(DETACH_S)
        if not started & _find_threads():
            return


def _find_threads():
    try:
        return set(os.listdir("/proc/self/task"))
    except OSError:
        return set()


def end_marks():
    """End every open ``record_function`` of the program; ending it again later does nothing."""
    kind = torch.autograd.profiler.record_function
    for mark in gc.get_objects():
        if type(mark) is kind and getattr(mark, "record", None) is not None:
            torch.ops.profiler._record_function_exit._RecordFunction(mark.record)
    mark = None


def find_remote_calls():
    """Return why the program would behave differently while a profiler is active, "" if it would not."""
    remote = getattr(torch._C, "_distributed_rpc", None)
    if remote is not None and "torch.distributed.rpc" in sys.modules and remote._is_current_rpc_agent_set():
        return "torch.distributed.rpc behaves differently while a profiler is at work"
    return ""


def _can_write(folder, path):
    """Make the folder and an empty file, and return whether there is room."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize > ROOM_BYTES


def _has_modes():
    """Return whether a mode of the program would see the operations of a mark."""
    asked = (
        getattr(torch._C, name, None) for name in ("_len_torch_dispatch_stack", "_len_torch_function_stack")
    )
    return any(ask is None or ask() for ask in asked)


def _find_level(found):
    """Return Kineto's log level as an object with a ``value``; None if it is not found."""
    ctypes = sys.modules.get("ctypes")  # torch has imported it, so this is no new import
    if ctypes is None:
        return None
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(found.__file__), "lib", "libtorch_cpu.so"))
        return ctypes.c_int.in_dll(library, LEVEL)
    except (OSError, ValueError):
        return None


def _version(found):
    return _numbers(found.__version__)


def _numbers(version):
    return tuple(int(number) for number in str(version).split(".")[:2] if number.isdecimal())


def _unwrapped(function):
    return getattr(function, "__wrapped__", function)
