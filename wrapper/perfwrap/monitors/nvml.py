"""The GPUs that the job can see, through NVIDIA's own binding; what a GPU cannot tell is asked once only.

API: https://docs.nvidia.com/deploy/nvml-api. The library is safe to use from several threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from perfwrap.monitors.journal import JournalWriter

HIDDEN = ("", "-1", "void", "none", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU."""
LIBRARY = "libnvidia-ml.so.1"
MOST_FAILURES = 10
"""A function that fails so often in a row is not asked again."""


class Gpu:
    """One GPU under its NVML number, which is nvidia-smi's."""

    def __init__(self, nvml: Any, journal: JournalWriter, number: int, handle: Any) -> None:
        self.number, self.name = number, f"gpu/{number}"
        self.lost = False
        self._nvml, self._journal, self._handle = nvml, journal, handle
        self._since_ns = time.monotonic_ns()
        self._failures: dict[str, int] = {}
        self._series: dict[str, int] = {}

    def series(self, metric: str) -> int:
        """Return the id of one of this GPU's series."""
        if metric not in self._series:
            self._series[metric] = self._journal.series(self.name, metric)
        return self._series[metric]

    def ask(self, what: str, functions: tuple[str, ...], *arguments: object) -> Any:
        """Return what the first of these NVML functions that exists answers, or None.

        ``what`` names the answer: when it cannot be had, a line of coverage says so, once.
        A passing failure is only a gap.
        """
        if self.lost or self._failures.get(what, 0) >= MOST_FAILURES:
            return None
        try:
            answer = call(self._nvml, functions, self._handle, *arguments)
        except self._nvml.NVMLError as error:
            self._fail(what, error)
            return None
        self._failures[what] = 0
        return answer

    def _fail(self, what: str, error: Any) -> None:
        """Note a failure; some are for good, a lost GPU is for good in all respects."""
        nvml = self._nvml
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            self.lost = True
            self._journal.watched(self.name, self._since_ns, time.monotonic_ns(), f"lost: {error}")
            return
        passing = (
            nvml.NVML_ERROR_TIMEOUT,
            nvml.NVML_ERROR_UNKNOWN,
            nvml.NVML_ERROR_INSUFFICIENT_SIZE,
            nvml.NVML_ERROR_MEMORY,
        )
        failures = self._failures.get(what, 0) + 1 if error.value in passing else MOST_FAILURES
        self._failures[what] = failures
        if failures == MOST_FAILURES:
            self._journal.not_watched(f"{self.name}/{what}", str(error))


def call(nvml: Any, functions: tuple[str, ...], *arguments: object) -> Any:
    """Call the first function that binding and driver both have; NVMLError as the function raises it."""
    for function in filter(None, (getattr(nvml, name, None) for name in functions)):
        try:
            return function(*arguments)
        except (nvml.NVMLError_FunctionNotFound, _mismatch(nvml)):
            continue
    raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def start(journal: JournalWriter | None) -> Any:
    """Return the binding, ready for use, or None after a line of coverage that says why not."""
    try:
        # Imported here because hosts without a GPU need neither; asked first because it is quicker to say no.
        import ctypes

        ctypes.CDLL(LIBRARY)
        import pynvml
    except ImportError as error:
        return _without(journal, f"nvidia-ml-py cannot be used beside perfwrap: {error}")
    except OSError as error:
        missing = "No such file" in str(error)
        return _without(journal, f"no NVIDIA driver: {f'{LIBRARY} not found' if missing else error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _without(journal, f"the NVIDIA driver does not answer: {error}")
    return pynvml


def find_gpus(
    nvml: Any, journal: JournalWriter, environment: Mapping[str, str] = os.environ, quiet: bool = False
) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES lets the job see; all when it is not set.

    Its numbers are taken as nvidia-smi's. They may differ on a host with GPUs of several kinds unless
    CUDA_DEVICE_ORDER=PCI_BUS_ID; uuids name a GPU without doubt. A slice of a GPU (MIG) stands for the whole.
    """
    try:
        numbers = range(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        _without(None if quiet else journal, f"the GPUs cannot be counted: {error}")
        return []
    found = []
    for number in numbers:
        try:
            found.append(Gpu(nvml, journal, number, nvml.nvmlDeviceGetHandleByIndex(number)))
        except nvml.NVMLError as error:
            if not quiet:
                journal.not_watched(f"gpu/{number}", str(error))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    chosen = [gpu for gpu in found if gpu.number in _chosen(nvml, visible, found)]
    if not chosen and not quiet:
        journal.not_watched("gpu", f"CUDA_VISIBLE_DEVICES={visible} shows the program no GPU")
    return chosen


def _chosen(nvml: Any, visible: str, gpus: list[Gpu]) -> list[int]:
    """Return the numbers that the variable names, up to the first one that is not valid, as CUDA reads it."""
    uuids = {str(gpu.ask("uuid", ("nvmlDeviceGetUUID",))): gpu.number for gpu in gpus}
    numbers: list[int] = []
    for word in visible.split(","):
        word = word.strip()
        if word in HIDDEN:
            break
        if word.isdigit():
            matches = [gpu.number for gpu in gpus if gpu.number == int(word)]
        else:
            whole = _whole(nvml, word)
            matches = [number for uuid, number in uuids.items() if uuid.startswith(whole)]
        if len(matches) != 1:
            break
        numbers += matches
    return numbers


def _whole(nvml: Any, uuid: str) -> str:
    """Return the uuid of the GPU that a slice of it is part of; another uuid as it is."""
    if uuid.startswith("MIG-GPU-"):
        return uuid[len("MIG-") :].partition("/")[0]
    if uuid.startswith("MIG-"):
        try:
            part = nvml.nvmlDeviceGetHandleByUUID(uuid)
            return str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)))
        except nvml.NVMLError:
            return uuid
    return uuid


def _mismatch(nvml: Any) -> Any:
    """Return the error that newer bindings raise instead of NVMLError_FunctionNotFound."""
    return getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError_FunctionNotFound)


def _without(journal: JournalWriter | None, why: str) -> None:
    if journal is not None:
        journal.not_watched("gpu", why)
