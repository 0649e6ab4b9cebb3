"""Separate the files of the launcher from those that the command inherits."""

from __future__ import annotations

import os
import sys

from perfwrap.launch import proc


def fill_standard() -> None:
    """Open closed descriptors among 0 to 2, so that no file of perfwrap is taken for a standard stream.

    They are closed on execution: the command finds them closed, as without perfwrap.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    if sys.stderr is None:
        # print() treats None as standard output, which belongs to the command.
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (open as long as the process lives)


def point_at_null(*descriptors: int) -> None:
    """Point the descriptors to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


def close_all_but(*keep: int) -> None:
    """Close every descriptor except the standard three and those to keep."""
    for number in set(proc.open_descriptors()) - {0, 1, 2, *keep}:
        try:
            os.close(number)
        except OSError:
            continue  # The listing's own, closed already.


def let_go() -> None:
    """Close what this process inherited for the command, except standard error, which the report needs.

    Python makes its own files non-inheritable, which distinguishes the two.
    """
    point_at_null(0, 1)
    for number in proc.open_descriptors():
        try:
            if number > 2 and os.get_inheritable(number):
                os.close(number)
        except OSError:
            continue
