"""What a signal handler of the program's raises in the midst of the recorder reaches the program; nothing else does."""

from __future__ import annotations

import pytest

HANDLERS = {
    "function": "def handler(number, frame): raise TimeoutError('the time is up')",
    "several frames deep": "def fail(): raise TimeoutError('the time is up')\ndef handler(number, frame): fail()",
    "anything": "def handler(*more, **_): raise TimeoutError('the time is up')",
    "method": """
class Limit:
    def end(self, number, frame):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise TimeoutError('the time is up')
handler = Limit().end
""",
    "partial": """
from functools import partial
def end(limit, number, frame): raise TimeoutError('the time is up')
handler = partial(end, 5)
""",
}

PROGRAM = """
import signal
from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.journal import journal
open_journal()
{handler}
signal.signal(signal.SIGALRM, handler)
def work():
    signal.raise_signal(signal.SIGALRM)
    return sum(range(10))
"""


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_a_time_limit_that_ends_in_a_probe_reaches_the_program(run, interpreter: str, handler: str) -> None:
    done = run(
        PROGRAM.format(handler=handler)
        + """
try:
    guard.run("probe", work)
except TimeoutError as error:
    print(error, guard.failed)
""",
        python=interpreter,
    )
    assert done.stdout == "the time is up {}\n"


def test_a_time_limit_that_ends_while_the_journal_grows_reaches_the_program_and_the_journal_goes_on(
    run,
) -> None:
    done = run(
        PROGRAM.format(handler=HANDLERS["function"])
        + """
grow, name = os.posix_fallocate, journal.text("x")
def interrupted(*arguments):
    os.posix_fallocate = grow
    work()
os.posix_fallocate = interrupted
for number in range(5_000):
    try:
        journal.span(number, 1, number, name, journal_format.SYNC)
    except TimeoutError:
        print("reported")
"""
    )
    assert done.stdout == "reported\n"
    assert len(done.journal.of("SYNC")) == 4_999


def test_what_the_recorder_raises_itself_never_reaches_the_program(run, interpreter: str) -> None:
    done = run(
        """
from perfwrap_recorder import guard
open_journal()
def fail(frame, number=0): raise ValueError("a defect")
guard.run("probe", fail, sys._getframe())
print(guard.failed)
""",
        python=interpreter,
    )
    assert done.stdout == "{'probe': 'ValueError: a defect'}\n"
