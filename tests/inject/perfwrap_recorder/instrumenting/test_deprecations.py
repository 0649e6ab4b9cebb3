"""Instrumenting a function warns of nothing in any version of Python: a program may turn warnings into errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

INJECT = Path(__file__).resolve().parents[4] / "inject"

TARGET = '''
def documented(x):
    """Return twice of x."""
    return 2 * x

def constant(x):
    3
    return 2 * x

def attribute(x):
    x.real
    return 2 * x

def plain(x):
    return 2 * x
'''

PROGRAM = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import target
from perfwrap_recorder.instrumenting import instrument

instrument._is_compiling.append(bool)
seen = []
for function in (target.documented, target.constant, target.attribute, target.plain):
    before = function.__code__
    assert instrument.instrument(None, function, seen.append, lambda state, result: seen.append(result), None, ("x",))
    assert function.__code__ is not before and function.__code__.co_consts[0] == before.co_consts[0]
    assert function(4) == 8
print(len(seen))
"""


def test_no_deprecated_function_is_used(interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(TARGET)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [interpreter, "-B", "-W", "error", str(tmp_path / "program.py"), str(INJECT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "4\n"
