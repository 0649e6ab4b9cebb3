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


@pytest.mark.parametrize(
    ("steps", "how", "text"),
    [
        (30, {"signal": 2}, "ended by perfwrap after enough steps"),
        (30, {"signal": 11}, "killed by SIGSEGV"),
        (30, {"code": 1}, "exit code 1"),
        (30, {"code": 1, "after_trial": True}, "ended by perfwrap after enough steps"),
        (0, {"signal": 2}, "killed by SIGINT"),
    ],
)
def test_a_program_that_perfwrap_ended_after_enough_steps_did_not_fail(
    steps: int, how: dict[str, Any], text: str
) -> None:
    run = {"exit": how, "options": {"trial": {"steps": steps}}}
    assert ending_text.sentence(run) == text
    assert (ending_text.failure(run) == "") == text.startswith("ended by")


@pytest.mark.parametrize("options", [None, [], {"trial": None}, {"trial": {"steps": None}}, {"trial": 3}])
def test_options_that_are_missing_or_damaged_say_nothing(options: object) -> None:
    assert ending_text.sentence({"exit": {"signal": 2}, "options": options}) == "killed by SIGINT"
