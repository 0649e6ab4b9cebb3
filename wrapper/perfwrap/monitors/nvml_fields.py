"""NVML's "field values": many figures of a GPU in one call, each with an answer of its own.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap.monitors import nvml as library
from perfwrap.monitors.nvml import Gpu

TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Where a value stands, by NVML_VALUE_TYPE_…."""
ALL_LINKS = 0xFFFF_FFFF
"""As a field's scope: the sum over all NVLinks."""


class Fields:
    """Reads some fields of one GPU; one that the GPU does not have is asked once only.

    ``wanted``: the field's number and scope by name.
    """

    def __init__(self, gpu: Gpu, wanted: Mapping[str, tuple[int, int]]) -> None:
        self._gpu, self._wanted = gpu, dict(wanted)

    def read(self) -> dict[str, float]:
        """Return those that the GPU answers now."""
        gpu, nvml = self._gpu, self._gpu.nvml
        if not self._wanted:
            return {}
        names, fields = list(self._wanted), list(self._wanted.values())
        what = names[0] if len(names) == 1 else f"{names[0]} and the like"
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
    """Return NVML's union of types as a number."""
    return float(getattr(value, TYPES[kind]))
