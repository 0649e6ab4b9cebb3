"""The sampler finds the user's lines in real programs, and the programs do not notice it."""

from __future__ import annotations

import pytest

SAMPLED = """
from perfwrap_recorder import guard
from perfwrap_recorder.probes.host import stack_sampler
open_journal()
taken = [0]
take = stack_sampler.Samples.take
def count(self):
    take(self)
    taken[0] += 1
stack_sampler.Samples.take = count
def spin(many=20):
    until = taken[0] + many
    limit = clock.now() + 60 * 10**9
    while taken[0] < until and clock.now() < limit:
        sum(range(100))
"""

START = """
import atexit
stack_sampler.start(200)
atexit.register(stack_sampler.stop)
"""


def functions(journal) -> dict[str, int]:
    """Return how many samples each function has."""
    found: dict[str, int] = {}
    for record in journal.of("STACK"):
        function = record.line[2]
        found[function] = found.get(function, 0) + record.value
    return found


def test_the_line_that_runs_is_sampled_on_every_python(run, interpreter: str) -> None:
    done = run(
        SAMPLED + START + "spin(40)\nassert not guard.failed, guard.failed\n",
        python=interpreter,
    )
    assert functions(done.journal).get("spin", 0) >= 35
    threads = {record.thread: record for record in done.journal.of("THREAD")}
    assert {threads[record.thread].name for record in done.journal.of("STACK")} <= {"MainThread", ""}
    assert {record.label for record in done.journal.of("STACK")} == {""}
    assert "probe/sampler" in {record.name for record in done.journal.of("COVERAGE")}


def test_equal_samples_are_one_record_and_their_cost_is_reported(run) -> None:
    done = run(SAMPLED + START + "spin(100)\n")
    stacks = done.journal.of("STACK")
    assert len(stacks) < 20
    assert sum(record.value for record in stacks) >= 95
    own = [record for record in done.journal.of("PERFWRAP") if record.name == "sampler"]
    assert own
    assert all(record.duration > 0 for record in own)


def test_threads_that_record_something_are_sampled_too(run) -> None:
    done = run(
        SAMPLED
        + START
        + """
import threading
def work():
    journal.mark("here")
    spin(40)
def rest():
    spin(40)
threads = [threading.Thread(target=work), threading.Thread(target=rest)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    )
    callers = {record.line[2] for record in done.journal.of("STACK")}
    names = {record.thread: record.name for record in done.journal.of("THREAD")}
    assert "spin" in callers
    assert len({record.thread for record in done.journal.of("STACK")}) == 2
    assert not any("rest" in name for name in names.values())


def test_threading_knows_nothing_of_it_and_it_ends_before_python_does(run) -> None:
    done = run(
        SAMPLED
        + """
import atexit, threading
atexit.register(lambda: print(len(sys._current_frames())))
"""
        + START
        + """
spin()
print(threading.active_count(), len(threading.enumerate()), len(sys._current_frames()))
"""
    )
    assert done.stdout == "1 1 2\n1\n"


def test_a_program_that_waits_for_a_signal_gets_it(run) -> None:
    done = run(
        SAMPLED
        + START
        + """
import signal
spin(1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for _ in range(20):
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
print("got them")
"""
    )
    assert done.stdout == "got them\n"


def test_what_a_function_held_is_gone_when_it_has_returned(run) -> None:
    done = run(
        SAMPLED
        + START
        + """
import weakref
class Thing: pass
alive = 0
def hold():
    thing = Thing()
    sum(range(500))
    return weakref.ref(thing)
while taken[0] < 40:
    for _ in range(100):
        alive += hold()() is not None
print(alive)
"""
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize("records", [True, False])
def test_the_child_of_a_fork_has_a_sampler_when_it_records_something(run, records: bool) -> None:
    done = run(
        SAMPLED
        + START
        + f"""
journal.after_fork.add(stack_sampler.forget)
journal.when_made.append(lambda: stack_sampler.start(200))
def in_child():
    spin(20)
spin(1)
child = os.fork()
if child == 0:
    if {records}:
        journal.mark("here")
        in_child()
    print(len(sys._current_frames()), flush=True)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
"""
    )
    assert done.stdout == ("2\n" if records else "1\n")
    assert len(done.journals) == 1 + records
    if records:
        child = next(found for found in done.journals if any(r.name == "here" for r in found.of("MARK")))
        assert functions(child).get("spin", 0) >= 15


def test_what_was_sampled_before_a_kill_is_there(run) -> None:
    done = run(SAMPLED + START + "spin(20)\nos.kill(os.getpid(), 9)\n", check=False)
    assert functions(done.journal).get("spin", 0) >= 15


def test_an_error_in_it_ends_it_and_harms_nothing(run) -> None:
    done = run(
        SAMPLED
        + """
def fail(frame): raise RuntimeError("no")
stack_sampler._phase_and_place = fail
"""
        + START
        + """
limit = clock.now() + 60 * 10**9
while not guard.failed and clock.now() < limit: pass
print(guard.failed)
"""
    )
    assert done.stdout == "{'sampler': 'RuntimeError: no'}\n"


def test_a_second_start_is_the_first_one(run) -> None:
    done = run(SAMPLED + START + "stack_sampler.start(50)\nspin(1)\nprint(len(sys._current_frames()))\n")
    assert done.stdout == "2\n"


def test_exit_codes_and_last_words_stay(run) -> None:
    done = run(SAMPLED + START + "spin(1)\nraise SystemExit(7)\n", check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.journals[0].of("END")
