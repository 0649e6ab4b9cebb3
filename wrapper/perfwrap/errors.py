"""The exception for errors that the user can fix."""

from __future__ import annotations


class PerfwrapError(Exception):
    """An error that the user can fix: what happened, and in ``hint`` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
