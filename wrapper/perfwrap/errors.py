"""The one exception that means: the user can mend this."""

from __future__ import annotations


class PerfwrapError(Exception):
    """Something that the user can mend: what happened, and in ``hint`` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
