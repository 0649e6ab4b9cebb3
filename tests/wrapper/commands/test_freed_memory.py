"""Commands that read large files make polars return memory sooner; the user's program never inherits that."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from perfwrap.commands import COMMANDS, FREED_MEMORY

SHOW = """
import os, sys
from perfwrap.commands import COMMANDS
next(command for command in COMMANDS if command.name == sys.argv[1]).load()
print(os.environ.get("_RJEM_MALLOC_CONF", ""))
"""


@pytest.mark.parametrize(
    ("name", "is_set"), [("import", True), ("report", True), ("run", False), ("try", False)]
)
def test_only_commands_that_read_set_the_allocator(name: str, is_set: bool) -> None:
    # Polars set the variable in this process.
    variables = {key: value for key, value in os.environ.items() if key != FREED_MEMORY[0]}
    words = [sys.executable, "-c", SHOW, name]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=variables)
    assert (FREED_MEMORY[1] in ran.stdout) == is_set


def test_no_command_that_starts_a_program_reads_much() -> None:
    assert not any(command.passes_through and command.reads_much for command in COMMANDS)
