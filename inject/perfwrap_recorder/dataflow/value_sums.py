"""Checksums of the memory of tensors, without an operation that the program's modes could observe.

On the CPU the bytes are read at their address. On other devices two sums are launched, and read once at the end of the
window, so nothing waits for the device meanwhile.
"""

from __future__ import annotations

import ctypes
import zlib

from perfwrap_recorder.clock import now

MAX_BYTES = 1 << 20
"""Of larger memory PIECES pieces with this many bytes together are read."""
PIECES = 16
MAX_COPIED_BYTES = 1 << 26
"""Larger tensors that are not contiguous are not read."""
MAX_NS = 1_000_000_000
"""Time for all checksums of one window."""
EMPTY, UNKNOWN = 1, 0


class ValueSums:
    """The checksums of one window; ``waiting`` are those of other devices, whose values are read at the end."""

    def __init__(self, torch):
        self._torch = torch
        # Not the method of tensors, which is watched.
        self._storage_of = (getattr(torch._C, "TensorBase", None) or torch._C._TensorBase).untyped_storage
        self.ns = 0
        self.waiting = {}
        """Number of a checksum, negative -> (sum of its bytes as integers, the same with weights)."""

    def of_tensor(self, tensor):
        """Return the checksum of a tensor's elements; UNKNOWN if it was not made.

        Memory around them may be uninitialised, and so different each time.
        """
        size = tensor.numel() * tensor.element_size()
        if not tensor.is_contiguous():
            if size > MAX_COPIED_BYTES:
                return UNKNOWN
            with self._torch._C._DisableTorchDispatch(), self._torch.no_grad():
                tensor = tensor.contiguous()
        return self._sum(self._storage_of(tensor), tensor.storage_offset() * tensor.element_size(), size)

    def of_storage(self, storage, size):
        """Return the checksum of a storage of that many bytes; UNKNOWN if it was not made."""
        return self._sum(storage, 0, size)

    def _sum(self, storage, begin, size):
        if self.ns > MAX_NS:
            return UNKNOWN
        if not size:
            return EMPTY
        began = now()
        try:
            if storage.device.type == "cpu":
                return self._on_cpu(storage, begin, size)
            return self._elsewhere(storage, begin, size)
        finally:
            self.ns += now() - began

    def _on_cpu(self, storage, first, size):
        try:
            address = storage.data_ptr()
        except RuntimeError:
            return UNKNOWN  # without memory: all zeros, by torch.func, or fake
        if not address:
            return UNKNOWN
        address += first
        found, piece = 0, size
        if size > MAX_BYTES:
            piece = MAX_BYTES // PIECES
        for at in range(PIECES if size > MAX_BYTES else 1):
            begin = (size - piece) * at // (PIECES - 1)
            found = zlib.crc32((ctypes.c_char * piece).from_address(address + begin), found)
        return (found << 32 | (size & 0xFFFFFFFF)) + 2  # not EMPTY, not UNKNOWN

    def _elsewhere(self, storage, first, size):
        torch = self._torch
        if size % 4 or first % 4 or storage.device.type == "meta":
            return UNKNOWN
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            words = torch.empty(0, dtype=torch.int32, device=storage.device).set_(storage)
            words = words[first // 4 : (first + size) // 4 : max(1, size // MAX_BYTES)]
            weights = torch.arange(words.numel(), device=words.device, dtype=torch.int32)
            number = -2 - len(self.waiting)
            self.waiting[number] = words.sum(dtype=torch.int64), (words * weights).sum(dtype=torch.int64)
        return number

    def read(self):
        """Return the values of the waiting checksums; this waits for their devices."""
        with self._torch._C._DisableTorchDispatch():
            return {
                number: hash((int(plain), int(weighted))) & 0x7FFFFFFFFFFFFFFF or 2
                for number, (plain, weighted) in self.waiting.items()
            }
