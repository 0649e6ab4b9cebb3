"""Returns a checksum of an item of a dataset, and whether a global random generator has moved.

No code of the user runs and no operation of torch: the memory of tensors and arrays is read where it is. Only types
whose content is in Python's, NumPy's and torch's own hands are read; an item that holds anything else has no checksum.
"""

from __future__ import annotations

import ctypes
import sys
from _random import Random
from zlib import crc32

from perfwrap_recorder import static_access
from perfwrap_recorder.program import tensor_access

MAX_BYTES = 1 << 20
"""So much of an item is read as a whole; of more, SLICES slices of each tensor, array, and string."""
SLICES, SLICE_BYTES = 16, 16 << 10
MAX_SLICED = 8
"""An item with more of those beyond MAX_BYTES has no checksum."""
MAX_PARTS = 4096
MAX_DEPTH = 4
OBJECT_BYTES, NUMBER_BYTES = 64, 32
"""About the memory that a Python object needs besides its data, and that a number needs."""

NUMBERS = frozenset(map(id, (bool, int, float, complex, type(None))))
"""Ids of the types, since a class may define a hash."""
ARRAY_KINDS = "biufcmMSU"
"""NumPy's types that hold their data themselves, unlike objects."""
READABLE = 0x100  # PyBUF_READ

_view_of = []  # PyMemoryView_FromMemory, once it was needed


class Total:
    """The checksum of the parts of an item so far."""

    __slots__ = ("bytes", "checksum", "place", "read", "parts", "sliced")

    def __init__(self):
        self.bytes = self.checksum = self.place = self.read = self.parts = self.sliced = 0

    def note(self, *words):
        """Count what says how data is to be read."""
        self.checksum = crc32(repr(words).encode("utf-8", "surrogatepass"), self.checksum)

    def read_all(self, data):
        """Count bytes, or slices of them; return whether that was possible."""
        size = len(data)
        if self.read + size <= MAX_BYTES:
            self.read += size
            self.checksum = crc32(data, self.checksum)
            return True
        self.sliced += 1
        stride = max(1, (size - SLICE_BYTES) // (SLICES - 1))
        for first in range(0, stride * SLICES, stride):
            self.checksum = crc32(data[first : first + SLICE_BYTES], self.checksum)
        return self.sliced <= MAX_SLICED

    def is_at(self, address):
        """Count where data is."""
        self.place = crc32(b"%x" % address, self.place)


def checksum(torch, item):
    """Return checksum, bytes and place in memory of an item; None if a part is of an unknown type.

    The place is the same if all data is the same objects. LATER if reading it would be observed.
    """
    total = Total()
    known = tensor_access.look(torch, _add, torch, total, item, 0)
    if known is tensor_access.LATER:
        return known
    return (total.checksum, total.bytes, total.place or id(item)) if known else None


def _add(torch, total, part, depth):
    """Count a part of an item; return whether its type is known."""
    kind = type(part)
    total.parts += 1
    if total.parts > MAX_PARTS:
        return False
    if id(kind) in NUMBERS:
        total.bytes += NUMBER_BYTES
        total.note(part)
        return True
    total.bytes += OBJECT_BYTES
    if kind is str or kind is bytes:
        data = part.encode("utf-8", "surrogatepass") if kind is str else part
        total.note(static_access.name_of(kind), len(data))
        total.is_at(id(part))
        total.bytes += len(data)
        return total.read_all(memoryview(data))
    if tensor_access.is_plain(torch, part):
        found = _geometry_of_tensor(torch, part)
    elif _is_of_numpy(kind):
        found = _geometry_of_array(part)
    else:
        return _add_container(torch, total, part, kind, depth)
    return found is not None and _add_memory(total, *found)


def _add_container(torch, total, part, kind, depth):
    """Count what is in a list, tuple or dictionary; methods of subclasses are not called."""
    if depth >= MAX_DEPTH:
        return False
    # An object of a subclass may have attributes besides, which are not read.
    if not static_access.has_type(part, (list, tuple, dict)) and static_access.own(part):
        return False
    if static_access.is_kind_of(kind, dict):
        total.note("dict", dict.__len__(part))
        held = [each for pair in dict.items(part) for each in pair]
    elif static_access.is_kind_of(kind, list, tuple):
        base = list if static_access.is_kind_of(kind, list) else tuple
        total.note(base.__name__, base.__len__(part))
        held = list(base.__iter__(part)) if base.__len__(part) <= MAX_PARTS else ()
        if len(held) != base.__len__(part):
            return False
        if all(id(type(each)) in NUMBERS for each in held):
            total.parts += len(held)
            total.bytes += len(held) * NUMBER_BYTES
            total.note(held)
            return total.parts <= MAX_PARTS
    else:
        return False
    return all(_add(torch, total, each, depth + 1) for each in held)


def _geometry_of_tensor(torch, tensor):
    """Return how the data of a tensor is in memory: type, address, bytes of an element, sizes and strides."""
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return None
    if tensor.is_quantized or not hasattr(tensor, "untyped_storage"):  # before torch 2.0
        return None
    width, sizes = tensor.element_size(), tuple(tensor.size())
    strides = tuple([width * stride for stride in tensor.stride()])
    storage = tensor.untyped_storage()
    first = tensor.storage_offset() * width
    if first + _extent(width, sizes, strides)[1] > storage.nbytes():  # a storage that was made smaller
        return None
    kind = tensor.dtype, tensor.is_conj(), tensor.is_neg()
    return kind, storage.data_ptr() + first, width, sizes, strides


def _is_of_numpy(kind):
    numpy = sys.modules.get("numpy")
    array, scalar = getattr(numpy, "ndarray", None), getattr(numpy, "generic", None)
    if array is None or scalar is None or static_access.module_of(kind) != "numpy":
        return False
    return kind is array or static_access.is_kind_of(kind, scalar)


def _geometry_of_array(array):
    """Return the same of an array; of a number of NumPy also the copy that holds its data."""
    numpy, copy = sys.modules["numpy"], None
    if type(array) is not numpy.ndarray:
        array = copy = numpy.array(array)
    shown = array.__array_interface__
    if shown["typestr"][1] not in ARRAY_KINDS:
        return None
    width, sizes = array.itemsize, shown["shape"]
    return shown["typestr"], shown["data"][0], width, sizes, array.strides, copy


def _extent(width, sizes, strides):
    """Return where elements begin and end in memory, in bytes from the first one."""
    if 0 in sizes:
        return 0, 0
    reach = [(size - 1) * strides[at] for at, size in enumerate(sizes)]
    return sum([each for each in reach if each < 0]), sum([each for each in reach if each > 0]) + width


def _add_memory(total, kind, address, width, sizes, strides, owner=None):
    """Count the data of a tensor or array, with what is between its elements; ``owner`` is a copy that holds it."""
    low, high = _extent(width, sizes, strides)
    elements = 1
    for size in sizes:
        elements *= size
    total.note(str(kind), sizes, strides)
    if owner is None:
        total.is_at(address)
    total.bytes += elements * width
    return high == low or total.read_all(_memory(address + low, high - low))


def _memory(address, size):
    """Return memory to read without a copy; ctypes would keep a type for each size."""
    if not _view_of:
        function = ctypes.PyDLL(None)["PyMemoryView_FromMemory"]
        function.restype = ctypes.py_object
        function.argtypes = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
        _view_of.append(function)
    return _view_of[0](address, size, READABLE)


def generator_states(torch):
    """Return what changes when a global random generator of Python, NumPy or torch moves; LATER if observed."""
    own = tensor_access.calculate(torch, _state_of_torch, torch)
    if own is tensor_access.LATER:
        return own
    return own, _state_of_python(), _state_of_numpy()


def _state_of_torch(torch):
    state = torch.default_generator.get_state()
    return crc32(_memory(state.data_ptr(), state.numel()))


def _state_of_python():
    generator = getattr(sys.modules.get("random"), "_inst", None)
    if not static_access.is_a(generator, Random):
        return None
    return hash(Random.getstate(generator)), static_access.own(generator).get("gauss_next")


def _state_of_numpy():
    module = sys.modules.get("numpy.random.mtrand")
    generator = getattr(module, "_rand", None)
    if generator is None or type(generator) is not getattr(module, "RandomState", None):
        return None
    shown = generator.get_state(legacy=False)
    inner = [crc32(each) if hasattr(each, "tobytes") else each for each in shown["state"].values()]
    return inner, shown["has_gauss"], shown["gauss"]
