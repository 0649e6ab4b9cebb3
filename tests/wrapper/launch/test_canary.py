from __future__ import annotations

import subprocess
import sys

HATCH = """
import os, signal
from pathlib import Path
from perfwrap.launch import canary
from perfwrap.launch.signals import ALL
signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
found = canary.hatch(["train", "it"])
print(Path(f"/proc/{found.pid}/cmdline").read_bytes().rstrip(b"\\0"))
os.kill(found.pid, signal.SIGKILL)
"""


def test_it_looks_like_the_command_before_the_command_can_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HATCH], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == "b'train\\x00it'\n"
