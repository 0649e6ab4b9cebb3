"""What each tensor operation of three consecutive steps read, wrote and took: a dataflow window.

Rows are in the order of the recorder, ``inject/perfwrap_recorder/dataflow``; numbers refer to places in the other lists
of the same window. Times are nanoseconds.
"""

from __future__ import annotations

import msgspec

STEPS = 3
"""Steps of a window. The middle one is judged."""

BACKWARD, OPTIMIZER, DATA, NO_GRAD, TRACKED, RECOMPUTE, HOST, RANDOM, ACCUMULATE, OTHER_THREAD = (
    1 << bit for bit in range(10)
)
CONVERT, READ, STABLE, CHECKPOINTED = 1 << 10, 1 << 11, 1 << 12, 1 << 13
"""The bits of ``flags``, as in the recorder's ``operation_flags.py``."""

NEW, WRITTEN, VIEW = range(3)
"""What an operation did to a value: made it in new memory, wrote over memory, or returned a view of it."""


class Function(msgspec.Struct, array_like=True, frozen=True):
    """One function of torch."""

    name: str
    overload: str
    namespace: str
    is_random: bool
    is_dynamic: bool
    """Whether the shape of its result depends on values."""
    has_unknown_effects: bool
    is_empty: bool
    """Whether its result has no values yet."""


class Geometry(msgspec.Struct, array_like=True, frozen=True):
    """The place of a tensor in its storage."""

    offset: int
    shape: list[int]
    stride: list[int]
    dtype: str
    element_bytes: int

    @property
    def elements(self) -> int:
        """The number of different elements: those of expanded dimensions are one."""
        count = 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            count *= size if stride else 1
        return count


class Storage(msgspec.Struct, array_like=True, frozen=True):
    """Memory of tensors."""

    first_step: int
    """The step of the window in which it was first seen."""
    bytes: int
    on_device: bool


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """A line of the program, or of an installed package."""

    file: str
    line: int
    function: str
    is_installed: bool


class Module(msgspec.Struct, array_like=True, frozen=True):
    """A module of the model."""

    path: str
    kind: str


class Operation(msgspec.Struct, array_like=True, frozen=True):
    """One call of one function."""

    function: int
    inside: int
    """Its stack; in backward only frames inside of the engine, -1 without any."""
    outside: int
    """In backward, the stack outside of the engine; otherwise -1."""
    flags: int
    reads: list[int]
    """Value, geometry, value, geometry…"""
    scalars: int
    """A hash of its other arguments."""
    writes: list[int]
    """Value, geometry, how, value…"""
    start: int
    """Since the window was opened."""
    duration: int
    gap: int
    """From the end of what was recorded before to its start."""
    node: int
    """The sequence number of the node of autograd that it made, or whose backward it belongs to; -1 without one."""
    backward: int
    """The number of the backward pass, -1 outside of one."""
    nth: int
    """How many calls of the same function with the same stack came before in this step; -1 in backward."""
    module: int

    def inputs(self) -> zip[tuple[int, int]]:
        """Return value and geometry of each input."""
        return zip(self.reads[::2], self.reads[1::2], strict=True)

    def outputs(self) -> zip[tuple[int, int, int]]:
        """Return value, geometry and how of each output."""
        return zip(self.writes[::3], self.writes[1::3], self.writes[2::3], strict=True)


class OperationWindow(msgspec.Struct, frozen=True):
    """One window of one thread."""

    format: int
    torch: str
    thread: int
    """The track of its thread, -1 if the journal does not have it; in the file its number in the journal."""
    opened: int
    ends: list[int]
    """When each step ended, since the window was opened."""
    first_operations: list[int]
    """The first operation of each step, and the number of all."""
    bare: list[int]
    """Durations of steps before the window."""
    own: int
    """What the recorder itself took."""
    functions: list[Function]
    geometries: list[Geometry]
    storages: list[Storage]
    value_storage: list[int]
    value_operation: list[int]
    """The operation that made each value, -1 if it was there before."""
    value_sums: dict[int, int]
    """Checksums of values that are the same in each step as far as the recorder knew."""
    stacks: list[list[Frame]]
    """The innermost frame first."""
    modules: list[Module]
    operations: list[Operation]
    gpu: list[tuple[int, int]]
    """(operation, its duration on the GPU), for operations that ran there."""
    alive: list[tuple[int, int]]
    """(storage, value) of the memory that existed at the end."""
    unowned: list[int]
    """Storages of gradients whose parameters are in no optimizer."""
    nodes: dict[int, int]
    """The operation that made each node, by its sequence number."""
    sorts: dict[int, int] = {}
    """The dimension along which an operation sorts, by its number."""
    process: int = -1
    """The track of its process."""
