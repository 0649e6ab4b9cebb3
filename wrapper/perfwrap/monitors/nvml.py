"""NVIDIA's own binding, and a GPU that is asked through it; what a GPU cannot tell is asked once only.

API: https://docs.nvidia.com/deploy/nvml-api. The library is safe to use from several threads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from perfwrap.monitors.journal import JournalWriter

LIBRARY = "libnvidia-ml.so.1"
MOST_FAILURES = 10
"""A function that fails so often in a row is not asked again."""
CHEAP_NS = 100_000
ALLOWED_SHARE = 0.0008
"""A question whose answer costs more is asked so seldom that it takes this part of a core, of all GPUs together.
Real drivers take milliseconds for some, of processor time and for each GPU; tens of them would not fit into 1 %."""


def never(nvml: Any) -> tuple[int, ...]:
    """Return the codes by which single figures among many say that they will never be told."""
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    )


class Gpu:
    """One GPU under its NVML number, which is nvidia-smi's, or one slice of it (MIG).

    ``quiet`` leaves it to others to say that it was lost: several monitors may watch one GPU.
    """

    def __init__(
        self, nvml: Any, journal: JournalWriter, number: int, handle: Any, quiet: bool = False
    ) -> None:
        self.number, self.name, self.handle = number, f"gpu/{number}", handle
        self.nvml, self.journal = nvml, journal
        self.whole: Gpu | None = None
        """The GPU that this is a slice of."""
        self.slices: list[Gpu] = []
        self.instance = 0
        """A slice's number as NVML's "GPU instance"."""
        self._lost, self._quiet = False, quiet
        self._since_ns = time.monotonic_ns()
        self.sharers = 1
        """How many GPUs are watched."""
        self._failures: dict[str, int] = {}
        self._series: dict[str, int] = {}
        self._costs: dict[str, int] = {}
        self._rests: dict[str, int] = {}

    @property
    def lost(self) -> bool:
        """Whether it, or the GPU that it is a slice of, has gone for good."""
        return self._lost or (self.whole is not None and self.whole.lost)

    def begin(self) -> None:
        """Write down that it is watched from now on."""
        self._since_ns = time.monotonic_ns()
        self.journal.watched(self.name, self._since_ns)

    def series(self, metric: str) -> int:
        """Return the id of one of this GPU's series."""
        if metric not in self._series:
            self._series[metric] = self.journal.series(self.name, metric)
        return self._series[metric]

    def write(self, now_ns: int, values: list[tuple[str, float]]) -> None:
        """Write one value for each of these metrics, all of one moment."""
        if values:
            self.journal.samples(now_ns, [(self.series(metric), value) for metric, value in values])

    def ask(self, what: str, functions: tuple[str, ...], *arguments: object) -> Any:
        """Return what the first of these NVML functions that exists answers about this GPU, or None.

        ``what`` names the answer: when it cannot be had, a line of coverage says so, once.
        A passing failure is only a gap.
        """
        return self.attempt(what, lambda: call(self.nvml, functions, self.handle, *arguments))

    def attempt(self, what: str, work: Callable[[], Any], passing: tuple[int, ...] = ()) -> Any:
        """Return what ``work`` returns, or None where NVML fails, as ``ask`` does, and while ``what`` rests.

        ``passing`` are codes of failures that mean nothing at all.
        """
        if self.lost or self.is_at_rest(what) or self._failures.get(what, 0) >= MOST_FAILURES:
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
        """Say whether it is too early to ask this again, because the answer is dear."""
        return what in self._rests and time.monotonic_ns() < self._rests[what]

    def _pay(self, what: str, cost_ns: int) -> None:
        """Let a dear question rest; what is dear once only, as the first answer often is, does not count."""
        usual_ns, self._costs[what] = min(self._costs.get(what, 0), cost_ns), cost_ns
        if usual_ns <= CHEAP_NS:
            return
        if what not in self._rests:
            note = f"asked less often: an answer takes {usual_ns / 1e6:.1f} ms of a core"
            self.journal.watched(f"{self.name}/{what}", time.monotonic_ns(), note=note)
        self._rests[what] = time.monotonic_ns() + int(usual_ns * self.sharers / ALLOWED_SHARE)

    def peek(self, functions: tuple[str, ...], *arguments: object) -> Any:
        """Return the answer or None, and write nothing down: for questions whose answer is no series."""
        try:
            return None if self.lost else call(self.nvml, functions, self.handle, *arguments)
        except self.nvml.NVMLError:
            return None

    def give_up(self, what: str, why: str) -> None:
        """Write down why ``what`` is not watched, once, and never attempt it again."""
        if self._failures.get(what, 0) < MOST_FAILURES:
            self._failures[what] = MOST_FAILURES
            self.journal.not_watched(f"{self.name}/{what}", why)

    def _fail(self, what: str, error: Any) -> None:
        """Note a failure; some are for good, a lost GPU is for good in all respects."""
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
        if error.value not in passing or self._failures[what] == MOST_FAILURES:
            self._failures[what] = 0
            self.give_up(what, str(error))


def call(nvml: Any, functions: tuple[str, ...], *arguments: object) -> Any:
    """Call the first function that binding and driver both have; NVMLError as the function raises it."""
    for function in filter(None, (getattr(nvml, name, None) for name in functions)):
        try:
            return function(*arguments)
        except (nvml.NVMLError_FunctionNotFound, _mismatch(nvml)):
            continue
    raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def start() -> tuple[Any, str]:
    """Return the binding, ready for use, or None and why not."""
    if sys.platform == "darwin":
        return None, "Apple's GPUs show nothing to a process beside the program"
    try:
        # Imported here because hosts without a GPU need neither; asked first because it is quicker to say no.
        import ctypes

        ctypes.CDLL(LIBRARY)
        import pynvml
    except ImportError as error:
        return None, f"nvidia-ml-py cannot be used beside perfwrap: {error}"
    except OSError as error:
        missing = "No such file" in str(error)
        return None, f"no NVIDIA driver: {f'{LIBRARY} not found' if missing else error}"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"the NVIDIA driver does not answer: {error}"
    return pynvml, ""


def _mismatch(nvml: Any) -> Any:
    """Return the error that newer bindings raise instead of NVMLError_FunctionNotFound."""
    return getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError_FunctionNotFound)
