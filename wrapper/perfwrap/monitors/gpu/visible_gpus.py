"""The GPUs, and the slices of GPUs, that CUDA_VISIBLE_DEVICES lets the command see.

The variable: https://docs.nvidia.com/cuda/cuda-c-programming-guide (CUDA environment variables); slices (MIG):
https://docs.nvidia.com/datacenter/tesla/mig-user-guide. The monitors' process has the command's environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from perfwrap.monitors.gpu import nvml as library
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.monitor_journal import JournalWriter

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
HIDDEN = ("", "-1", "void", "none", "NoDevFiles")
"""Values of the variable that hide all GPUs."""


def watchable(journal: JournalWriter) -> list[Gpu]:
    """Return the visible GPUs for a second monitor; that of the GPUs records any problems."""
    nvml, _ = library.start()
    return find_gpus(nvml, journal, quiet=True) if nvml is not None else []


def find_gpus(
    nvml: Any, journal: JournalWriter, environment: Mapping[str, str] = os.environ, quiet: bool = False
) -> list[Gpu]:
    """Return the GPUs that the job can see, all if the variable is not set; each with its visible slices.

    The numbers in the variable count as those of nvidia-smi. They may differ on a host with GPUs of several kinds
    unless CUDA_DEVICE_ORDER=PCI_BUS_ID; then the coverage has a note. UUIDs are unambiguous.
    """
    try:
        numbers = range(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        if not quiet:
            journal.not_watched("gpu", f"the GPUs cannot be counted: {error}")
        return []
    found = []
    for number in numbers:
        try:
            found.append(Gpu(nvml, journal, number, nvml.nvmlDeviceGetHandleByIndex(number), quiet))
        except nvml.NVMLError as error:
            if not quiet:
                journal.not_watched(f"gpu/{number}", str(error))
    visible = environment.get(VISIBLE)
    names = {gpu.number: [] for gpu in found} if visible is None else _chosen(visible, found)
    chosen = [gpu for gpu in found if gpu.number in names]
    for gpu in chosen:
        gpu.slices = _slices(gpu, names[gpu.number], quiet)
        for each in (gpu, *gpu.slices):
            each.sharers = len(chosen)
    if visible is not None and not quiet:
        _explain(journal, visible, environment.get(ORDER, ""), found, chosen)
    return chosen


def _explain(journal: JournalWriter, visible: str, order: str, found: list[Gpu], chosen: list[Gpu]) -> None:
    """Record that nothing is visible, or that the numbers may mean other GPUs."""
    if not chosen:
        if found:
            journal.not_watched("gpu", f"{VISIBLE}={visible} shows the program no GPU")
        return
    kinds = {gpu.peek(("nvmlDeviceGetName",)) for gpu in found}
    if (
        len(kinds) > 1
        and order != "PCI_BUS_ID"
        and any(word.strip().isdecimal() for word in visible.split(","))
    ):
        journal.not_watched(
            "gpu/numbers",
            f"{VISIBLE}={visible} is read in nvidia-smi's order; with GPUs of several kinds CUDA has another one "
            f"unless {ORDER}=PCI_BUS_ID, so these may be the wrong ones",
        )


def _chosen(visible: str, gpus: list[Gpu]) -> dict[int, list[str]]:
    """Return the numbers in the variable, up to the first invalid one, as CUDA reads it.

    Each has the words that name slices of that GPU.
    """
    uuids = {str(gpu.peek(("nvmlDeviceGetUUID",))): gpu.number for gpu in gpus}
    chosen: dict[int, list[str]] = {}
    for word in (word.strip() for word in visible.split(",")):
        if word in HIDDEN:
            break
        if word.isdecimal():
            matches = [gpu.number for gpu in gpus if gpu.number == int(word)]
        else:
            whole = _whole(gpus[0].nvml, word) if gpus else word
            matches = [number for uuid, number in uuids.items() if uuid.startswith(whole)]
        if len(matches) != 1:
            break
        chosen.setdefault(matches[0], []).extend([word] if word.startswith("MIG-") else [])
    return chosen


def _whole(nvml: Any, uuid: str) -> str:
    """Return the UUID of the GPU of a slice; any other UUID unchanged."""
    if uuid.startswith("MIG-GPU-"):
        return uuid[len("MIG-") :].partition("/")[0]
    if uuid.startswith("MIG-"):
        try:
            part = nvml.nvmlDeviceGetHandleByUUID(uuid)
            return str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)))
        except nvml.NVMLError:
            return uuid
    return uuid


def _slices(gpu: Gpu, words: list[str], quiet: bool) -> list[Gpu]:
    """Return the slices of the GPU that these words name, all if there are no words."""
    mode = gpu.peek(("nvmlDeviceGetMigMode",))
    if not mode or not mode[0]:
        return []
    nvml, found = gpu.nvml, []
    for index in range(gpu.peek(("nvmlDeviceGetMaxMigDeviceCount",)) or 0):
        handle = gpu.peek(("nvmlDeviceGetMigDeviceHandleByIndex",), index)
        if handle is None:
            continue
        part = Gpu(nvml, gpu.journal, gpu.number, handle, quiet)
        numbers = [part.peek((f"nvmlDeviceGet{kind}InstanceId",)) for kind in ("Gpu", "Compute")]
        if None in numbers:
            continue
        part.whole, part.instance = gpu, numbers[0]
        part.name = f"mig/{gpu.number}-{numbers[0]}-{numbers[1]}"
        names = (str(part.peek(("nvmlDeviceGetUUID",))), f"/{numbers[0]}/{numbers[1]}")
        if not words or any(word.endswith(names) for word in words):
            found.append(part)
    return found
