"""Reads pickles of plain data without running them.

The opcodes are those of Python's ``pickletools`` (protocols 0 to 5, https://peps.python.org/pep-3154/). Only those that
make numbers, texts, containers and references to these are accepted: an opcode that looks up a class or calls
something is refused. Python's own unpickler, even with all classes disabled, allocates a declared size before it has
read the data, and can be made to overflow its stack.
"""

from __future__ import annotations

import pickletools  # nosec B403 # it only parses pickles, and runs none
from typing import Any

CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MAKE = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
VALUES = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "FLOAT", "BINFLOAT")
    + ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8")
)
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
KEYS = (str, int, float, bytes, type(None))
"""Accepted types of keys: computing the hash of deeply nested tuples overflows the stack."""
MARK = object()


class NotPlain(ValueError):
    """The pickle contains more than plain data, or is damaged."""


def loads(data: bytes) -> Any:
    """Return the content of the pickle; NotPlain if it is not plain data."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except (IndexError, KeyError) as error:
        raise NotPlain("it is damaged") from error
    except ValueError as error:
        raise NotPlain(str(error)[:200]) from error
    raise NotPlain("it is truncated")


class _Machine:
    """The stack and the memo after some opcodes."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        """Remove and return the last value."""
        value = self._stack.pop()
        if value is MARK:
            raise NotPlain("it is damaged")
        return value

    def step(self, name: str, argument: Any) -> None:
        """Execute one opcode."""
        if name in VALUES:
            self._stack.append(argument)
        elif name in CONSTANTS:
            self._stack.append(CONSTANTS[name])
        elif name in MAKE:
            self._stack.append(MAKE[name]())
        elif name == "MARK":
            self._stack.append(MARK)
        elif name in TUPLES:
            self._make_tuple(TUPLES[name])
        elif name == "TUPLE":
            self._stack.append(tuple(self._behind_mark()))
        elif name in ("LIST", "DICT"):
            items = self._behind_mark()
            self._stack.append([] if name == "LIST" else {})
            self._extend(items)
        elif name in ("APPEND", "SETITEM"):
            size = 1 if name == "APPEND" else 2
            items, self._stack[-size:] = self._stack[-size:], []
            self._extend(items)
        elif name in ("APPENDS", "SETITEMS"):
            self._extend(self._behind_mark())
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self._stack.append(self._memo[argument])
        elif name not in ("PROTO", "FRAME"):
            raise NotPlain(f"it contains more than plain data ({name}{f' {argument}' if argument else ''})")

    def _make_tuple(self, size: int) -> None:
        items, self._stack[-size:] = self._stack[-size:], []
        if len(items) < size or any(item is MARK for item in items):
            raise NotPlain("it is damaged")
        self._stack.append(tuple(items))

    def _behind_mark(self) -> list[Any]:
        """Remove the last mark and the values above it, and return these values."""
        items = []
        while (item := self._stack.pop()) is not MARK:
            items.append(item)
        return items[::-1]

    def _extend(self, items: list[Any]) -> None:
        """Add items to the list on the stack, or keys and values to the dictionary."""
        target = self._stack[-1]
        if any(item is MARK for item in items):
            raise NotPlain("it is damaged")
        if isinstance(target, list):
            target.extend(items)
        elif (
            isinstance(target, dict)
            and len(items) % 2 == 0
            and all(isinstance(key, KEYS) for key in items[::2])
        ):
            target.update(zip(items[::2], items[1::2], strict=True))
        else:
            raise NotPlain("it is damaged")
