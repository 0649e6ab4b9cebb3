"""Knows the memory of tensors, and the values that it held one after the other, without keeping any tensor.

A storage is known by a weak reference, which keeps its address from being used again. References to dead storages would
split the heap into pieces, so ``prune`` drops them at once.
"""

from __future__ import annotations

from collections import deque

YOUNG = 12
"""Storages that ``prune`` looks at each time; it looks at a few of the older ones, too."""
OLD_LOOKED_AT = 4


class Held:
    """One storage: its weak reference, number, present value and size in bytes."""

    __slots__ = ("bytes", "cdata", "number", "reference", "value")

    def __init__(self, reference, number, value, size):
        self.reference, self.number, self.value, self.bytes = reference, number, value, size
        self.cdata = reference.cdata


def core_of(torch):
    """Return the class of tensors that is written in C."""
    return getattr(torch._C, "TensorBase", None) or torch._C._TensorBase  # before torch 2.2


class TensorValues:
    """The storages, values and geometries of one window."""

    def __init__(self, torch):
        core = core_of(torch)
        self._torch = torch
        self._storage_of, self._is_nested = core.untyped_storage, core.is_nested.__get__
        self._offset, self._shape, self._stride = core.storage_offset, core.shape.__get__, core.stride
        self._type, self._size = core.dtype.__get__, core.element_size
        self._reference = torch.multiprocessing.reductions.StorageWeakRef
        self._held = {}
        self._young, self._old = deque(), deque()
        self._geometries = {}
        self.step = 0
        self.geometries = []
        """Number -> (offset, shape, stride, type, bytes of an element)."""
        self.storages = []
        """Number -> (step in which it was first seen, bytes, whether it is on another device than the CPU)."""
        self.storage, self.op, self.stable, self.sums = [], [], [], {}
        """Of each value: storage, the operation that made it or -1, whether it is the same in each step, checksum."""

    def find(self, tensor):
        """Return (Held, whether it is new, storage) of a tensor; None if it has no plain storage."""
        if self._is_nested(tensor):
            return None
        try:
            storage = self._storage_of(tensor)
        except (RuntimeError, NotImplementedError):
            return None  # sparse, or a wrapper
        held = self._held.get(storage._cdata)
        if held is not None:
            return held, False, storage
        number = len(self.storages)
        size = storage.nbytes()
        held = Held(self._reference(storage), number, self.add(number, -1, False), size)
        self._held[held.cdata] = held
        self.storages.append((self.step, size, storage.device.type != "cpu"))
        self._young.append(held)
        return held, True, storage

    def parts(self, tensor):
        """Return the tensors that hold the data of a tensor: those of a sparse one, or the tensor itself."""
        layout = tensor.layout
        torch = self._torch
        if layout is torch.strided:
            return (tensor,)
        with torch._C._DisableTorchDispatch():
            if layout is torch.sparse_coo:
                return tensor._indices(), tensor._values()
            if layout is torch.sparse_csr:
                return tensor.crow_indices(), tensor.col_indices(), tensor.values()
        return (tensor,)

    def add(self, storage, op, stable):
        """Return the number of a new value in that storage."""
        self.storage.append(storage)
        self.op.append(op)
        self.stable.append(stable)
        return len(self.op) - 1

    def geometry(self, tensor):
        """Return the number of a tensor's place in its storage."""
        key = self._offset(tensor), self._shape(tensor), self._stride(tensor), self._type(tensor)
        found = self._geometries.get(key)
        if found is None:
            found = self._geometries[key] = len(self.geometries)
            self.geometries.append(
                (
                    int(key[0]),
                    [int(size) for size in key[1]],
                    [int(size) for size in key[2]],
                    str(key[3]),
                    self._size(tensor),
                )
            )
        return found

    def prune(self):
        """Drop what is gone."""
        young, old, held = self._young, self._old, self._held
        for _ in range(len(young)):
            each = young.popleft()
            if each.reference.expired():
                del held[each.cdata]
            elif len(young) >= YOUNG:
                old.append(each)
            else:
                young.append(each)
        for _ in range(min(OLD_LOOKED_AT, len(old))):
            each = old.popleft()
            if each.reference.expired():
                del held[each.cdata]
            else:
                old.append(each)

    def alive(self):
        """Return (storage, value) of all that still exists."""
        return [(each.number, each.value) for each in self._held.values() if not each.reference.expired()]

    def find_number(self, tensor):
        """Return the number of a tensor's storage, None if it was not seen."""
        try:
            held = self._held.get(self._storage_of(tensor)._cdata)
        except (RuntimeError, NotImplementedError):
            return None
        return None if held is None else held.number

    def forget(self):
        """Release all references."""
        self._held, self._young, self._old = {}, deque(), deque()
