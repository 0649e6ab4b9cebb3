"""The bits that say what an operation of a dataflow window was part of; readers have the same."""

from __future__ import annotations

BACKWARD = 1 << 0
OPTIMIZER = 1 << 1
DATA = 1 << 2
"""Inside torch's DataLoader, in the process that trains."""
NO_GRAD = 1 << 3
TRACKED = 1 << 4
"""Autograd made a node for it."""
RECOMPUTE = 1 << 5
"""Activation checkpointing ran it again during backward."""
HOST = 1 << 6
"""The host read a value."""
RANDOM = 1 << 7
ACCUMULATE = 1 << 8
"""It accumulated the gradient of a leaf."""
OTHER_THREAD = 1 << 9
CONVERT = 1 << 10
"""It reads what is new but has the same bytes as at this place in the last step: converted from Python or NumPy."""
READ = 1 << 11
"""Not an operation: the program took the memory of a tensor, and no operation shows what it does with it."""
CHECKPOINTED = 1 << 13
"""Inside of activation checkpointing, in the forward pass."""
STABLE = 1 << 12
"""It follows from what is the same in every step."""

NEW, WRITTEN, VIEW = range(3)
"""What an operation did to a value: made it in new memory, wrote over memory, or returned a view of it."""
