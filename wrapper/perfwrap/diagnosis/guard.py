"""The only place in the analysis that catches every exception: a bug in one rule or measure costs only its result."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import TypeVar

Value = TypeVar("Value")


def guarded(work: Callable[[], Value], otherwise: Value) -> tuple[Value, str]:
    """Return the result of ``work`` and no text, or ``otherwise`` and the error."""
    try:
        return work(), ""
    except Exception as error:  # noqa: BLE001 - a bug in one rule must not cost the user the whole report
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return otherwise, f"{type(error).__name__}: {error} ({PurePath(frame.filename).name}:{frame.lineno})"
