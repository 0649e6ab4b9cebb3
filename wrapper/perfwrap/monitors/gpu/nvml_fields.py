"""NVML's "field values": many values of a GPU in one call, each with its own status.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap.monitors.gpu import nvml as library
from perfwrap.monitors.gpu.nvml import Gpu

TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The field of a value, by NVML_VALUE_TYPE_…."""
ALL_LINKS = 0xFFFF_FFFF
"""As a field's scope: the sum over all NVLinks."""


class Fields:
    """Reads some fields of one GPU; a field that the GPU does not have is requested once.

    ``wanted``: number and scope of each field, by name.
    """

    def __init__(self, gpu: Gpu, wanted: Mapping[str, tuple[int, int]]) -> None:
        self._gpu, self._wanted = gpu, dict(wanted)

    def read(self) -> dict[str, float]:
        """Return the fields that the GPU reports now."""
        gpu, nvml = self._gpu, self._gpu.nvml
        if not self._wanted:
            return {}
        names, fields = list(self._wanted), list(self._wanted.values())
        what = names[0] if len(names) == 1 else f"{names[0]} and other fields"
        answers = gpu.attempt(
            what, lambda: library.call(nvml, ("nvmlDeviceGetFieldValues",), gpu.handle, fields)
        )
        found = {}
        for name, answer in zip(names, answers or (), strict=False):
            if answer.nvmlReturn == nvml.NVML_SUCCESS:
                found[name] = plain(answer.valueType, answer.value)
            elif answer.nvmlReturn in library.never(nvml):
                del self._wanted[name]
                gpu.give_up(name, str(nvml.NVMLError(answer.nvmlReturn)))
        return found


def plain(kind: int, value: Any) -> float:
    """Return a value of NVML's union of types as a number."""
    return float(getattr(value, TYPES[kind]))
