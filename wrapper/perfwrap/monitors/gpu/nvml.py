"""NVIDIA's own binding, and a GPU that is read through it; unsupported values are requested only once.

API: https://docs.nvidia.com/deploy/nvml-api. The library is thread-safe.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from perfwrap.monitors.monitor_journal import JournalWriter

LIBRARY = "libnvidia-ml.so.1"
MAX_FAILURES = 10
"""A function that fails this often in a row is not called again."""
CHEAP_NS = 100_000
ALLOWED_SHARE = 0.0008
"""A call that costs more is made so rarely that it uses this share of a core, for all GPUs together. Some calls take
milliseconds of CPU time per GPU with real drivers; tens of them would exceed 1 %."""


def never(nvml: Any) -> tuple[int, ...]:
    """Return the codes of single values among many that are never available."""
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    )


class Gpu:
    """One GPU under its NVML number, which is nvidia-smi's, or one slice of it (MIG).

    With ``quiet``, another monitor records that the GPU was lost: several monitors may watch one GPU.
    """

    def __init__(
        self, nvml: Any, journal: JournalWriter, number: int, handle: Any, quiet: bool = False
    ) -> None:
        self.number, self.name, self.handle = number, f"gpu/{number}", handle
        self.nvml, self.journal = nvml, journal
        self.whole: Gpu | None = None
        """The GPU of this slice."""
        self.slices: list[Gpu] = []
        self.instance = 0
        """The number of a slice (NVML's "GPU instance")."""
        self._lost, self._quiet = False, quiet
        self._since_ns = time.monotonic_ns()
        self.sharers = 1
        """The number of watched GPUs."""
        self._failures: dict[str, int] = {}
        self._series: dict[str, int] = {}
        self._costs: dict[str, int] = {}
        self._rests: dict[str, int] = {}

    @property
    def lost(self) -> bool:
        """Whether it, or the GPU of this slice, is lost."""
        return self._lost or (self.whole is not None and self.whole.lost)

    def begin(self) -> None:
        """Record that it is watched from now on."""
        self._since_ns = time.monotonic_ns()
        self.journal.watched(self.name, self._since_ns)

    def series(self, metric: str) -> int:
        """Return the id of one of this GPU's series."""
        if metric not in self._series:
            self._series[metric] = self.journal.series(self.name, metric)
        return self._series[metric]

    def write(self, now_ns: int, values: list[tuple[str, float]]) -> None:
        """Write one value for each of these metrics, with the same time."""
        if values:
            self.journal.samples(now_ns, [(self.series(metric), value) for metric, value in values])

    def ask(self, what: str, functions: tuple[str, ...], *arguments: object) -> Any:
        """Return the result of the first existing one of these NVML functions for this GPU, or None.

        ``what`` names the value: if it is not available, the coverage says so, once. A temporary failure is only a gap.
        """
        return self.attempt(what, lambda: call(self.nvml, functions, self.handle, *arguments))

    def attempt(self, what: str, work: Callable[[], Any], passing: tuple[int, ...] = ()) -> Any:
        """Return the result of ``work``, or None if NVML fails, like ``ask``, and while ``what`` is paused.

        ``passing`` are codes of failures to ignore.
        """
        if self.lost or self.is_at_rest(what) or self._failures.get(what, 0) >= MAX_FAILURES:
            return None
        begin = time.thread_time_ns()
        try:
            answer = work()
        except self.nvml.NVMLError as error:
            if error.value not in passing:
                self._fail(what, error)
            return None
        self._pay(what, time.thread_time_ns() - begin)
        self._failures[what] = 0
        return answer

    def is_at_rest(self, what: str) -> bool:
        """Return whether it is too early to repeat this call, because it is expensive."""
        return what in self._rests and time.monotonic_ns() < self._rests[what]

    def _pay(self, what: str, cost_ns: int) -> None:
        """Pause an expensive call; one that is expensive only once, as the first often is, does not count."""
        usual_ns, self._costs[what] = min(self._costs.get(what, 0), cost_ns), cost_ns
        if usual_ns <= CHEAP_NS:
            return
        if what not in self._rests:
            note = f"read less often: each read takes {usual_ns / 1e6:.1f} ms of CPU time"
            self.journal.watched(f"{self.name}/{what}", time.monotonic_ns(), note=note)
        self._rests[what] = time.monotonic_ns() + int(usual_ns * self.sharers / ALLOWED_SHARE)

    def peek(self, functions: tuple[str, ...], *arguments: object) -> Any:
        """Return the value or None, and record nothing: for values that are not a series."""
        try:
            return None if self.lost else call(self.nvml, functions, self.handle, *arguments)
        except self.nvml.NVMLError:
            return None

    def give_up(self, what: str, why: str) -> None:
        """Record why ``what`` is not watched, once, and never try it again."""
        if self._failures.get(what, 0) < MAX_FAILURES:
            self._failures[what] = MAX_FAILURES
            self.journal.not_watched(f"{self.name}/{what}", why)

    def _fail(self, what: str, error: Any) -> None:
        """Handle a failure; some are permanent, and a lost GPU is permanent for all values."""
        nvml = self.nvml
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            self._lost = True
            if not self._quiet:
                self.journal.watched(self.name, self._since_ns, time.monotonic_ns(), f"lost: {error}")
            return
        passing = (
            nvml.NVML_ERROR_TIMEOUT,
            nvml.NVML_ERROR_UNKNOWN,
            nvml.NVML_ERROR_INSUFFICIENT_SIZE,
            nvml.NVML_ERROR_MEMORY,
        )
        self._failures[what] = self._failures.get(what, 0) + 1
        if error.value not in passing or self._failures[what] == MAX_FAILURES:
            self._failures[what] = 0
            self.give_up(what, str(error))


def call(nvml: Any, functions: tuple[str, ...], *arguments: object) -> Any:
    """Call the first function that exists in binding and driver; raises its NVMLError."""
    for function in filter(None, (getattr(nvml, name, None) for name in functions)):
        try:
            return function(*arguments)
        except (nvml.NVMLError_FunctionNotFound, _mismatch(nvml)):
            continue
    raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def start() -> tuple[Any, str]:
    """Return the binding, ready for use, or None and the reason."""
    if sys.platform == "darwin":
        return None, "Apple GPUs can only be read from inside the training process"
    try:
        # Imported here because hosts without a GPU need neither; checked first because it fails faster.
        import ctypes

        ctypes.CDLL(LIBRARY)
        import pynvml
    except ImportError as error:
        return None, f"cannot load nvidia-ml-py: {error}"
    except OSError as error:
        missing = "No such file" in str(error)
        return None, f"no NVIDIA driver: {f'{LIBRARY} not found' if missing else error}"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"the NVIDIA driver does not respond: {error}"
    return pynvml, ""


def _mismatch(nvml: Any) -> Any:
    """Return the error that newer bindings raise instead of NVMLError_FunctionNotFound."""
    return getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError_FunctionNotFound)
