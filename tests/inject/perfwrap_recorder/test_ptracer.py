"""Exactly the process that the launcher names may look into the program, and only where it names one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
EINVAL = 22
"""What a kernel without Yama answers: there everybody of the same user may attach anyway."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PTRACER is Linux's")


def test_the_kernel_answers_as_it_does_to_anybody(run, interpreter: str) -> None:
    done = run(
        """
from perfwrap_recorder import ptracer
open_journal()
print(ptracer.allow(os.getppid()), os.getppid())
""",
        python=interpreter,
    )
    error, pid = map(int, done.stdout.split())
    assert error == (0 if YAMA.exists() else EINVAL)
    assert done.journal.facts["ptracer"] == f"{pid}: " + ("error 22" if error else "allowed")


def test_a_process_that_does_not_exist_is_refused_or_not_asked_for(run) -> None:
    done = run(
        """
from perfwrap_recorder import ptracer
open_journal()
print(ptracer.allow(2**22 + 1))
"""
    )
    assert int(done.stdout) == EINVAL


def test_nothing_is_loaded_or_said_where_it_was_not_requested(run) -> None:
    done = run(
        """
from perfwrap_recorder import ptracer
open_journal()
before = set(sys.modules)
ptracer.allow_asked()
print(set(sys.modules) - before)
"""
    )
    assert done.stdout == "set()\n"
    assert "ptracer" not in done.journal.facts
