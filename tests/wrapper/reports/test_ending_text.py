"""The words for how a command ended."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.reports import ending_text

MEMORY = {"processes": 1, "scope": "container", "limit_bytes": 2 << 30, "command": True, "pids": None}


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (None, "no end was recorded"),
        ({"code": 0}, "exit code 0"),
        ({"code": 1}, "exit code 1"),
        ({"code": 137}, "exit code 137 (from a shell: SIGKILL)"),
        ({"signal": 11}, "killed by SIGSEGV"),
        ({"signal": 63}, "killed by signal 63"),
        ({"signal": 6, "core_dumped": True, "core_pattern": "core"}, "killed by SIGABRT (core dumped)"),
        (
            {"signal": 9, "oom_kill": MEMORY},
            "killed by SIGKILL: the container ran out of memory (limit 2 GiB)",
        ),
        (
            {"signal": 9, "oom_kill": MEMORY | {"scope": "machine", "limit_bytes": None}},
            "killed by SIGKILL: the machine ran out of memory",
        ),
        (
            {"code": 1, "oom_kill": MEMORY | {"command": False}},
            "exit code 1; meanwhile the container ran out of memory (limit 2 GiB) and the kernel killed 1 process",
        ),
        (
            {"code": 1, "oom_kill": MEMORY | {"command": False, "processes": 2, "pids": [7]}},
            "exit code 1; meanwhile the container ran out of memory (limit 2 GiB) and the kernel killed "
            "2 processes, of this run",
        ),
        (
            {"code": 0, "oom_kill": MEMORY | {"command": False, "pids": []}},
            "exit code 0; meanwhile the container ran out of memory (limit 2 GiB) and the kernel killed "
            "1 process, none of this run as far as known",
        ),
    ],
)
def test_an_end_is_a_few_words(how: dict[str, Any] | None, text: str) -> None:
    assert ending_text.sentence({"exit": how}) == text
