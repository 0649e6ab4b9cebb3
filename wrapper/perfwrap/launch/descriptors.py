"""Keep the launcher's files apart from those that the command inherits."""

from __future__ import annotations

import os
import sys

from perfwrap.launch import proc


def fill_standard() -> None:
    """Occupy closed ones of the descriptors 0 to 2, so that no file of ours is taken for a standard stream.

    What is opened here is closed on execution: the command finds them closed, as without perfwrap.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    if sys.stderr is None:
        # print() takes None for standard output, which is the command's alone.
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (open as long as the process lives)


def point_at_null(*descriptors: int) -> None:
    """Let the descriptors read and write nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


def close_all_but(*keep: int) -> None:
    """Close every descriptor but the standard three and those to keep."""
    for number in set(proc.open_descriptors()) - {0, 1, 2, *keep}:
        try:
            os.close(number)
        except OSError:
            continue  # The listing's own, closed already.


def let_go() -> None:
    """Give up what this process inherited for the command, but for standard error: the report needs it.

    Python makes its own files uninheritable, which tells the two apart.
    """
    point_at_null(0, 1)
    for number in proc.open_descriptors():
        try:
            if number > 2 and os.get_inheritable(number):
                os.close(number)
        except OSError:
            continue
