"""Full collections bear a line where the program asked for them, and only there."""

from __future__ import annotations

import sys

PROGRAM = """
import gc
gc.set_threshold(300, 2, 2)
gc.freeze()
kept = []
def work():
    for number in range(20_000): kept.append([number])
before = gc.get_stats()[2]["collections"]
for _ in range(12): work()
print(gc.get_stats()[2]["collections"] - before)
gc.collect()
for _ in range(3): gc.collect()  # ASKED
gc.collect(1)
"""


def test_only_what_the_program_asks_for_bears_its_line(train) -> None:
    done = train(PROGRAM)
    own = int(done.stdout)
    program = (done.run_dir / "program.py").read_text().splitlines()
    spans = done.journal.of("GC")
    called = [program[int(span.line[1]) - 1] for span in spans if span.line]
    assert own > 0 or sys.version_info >= (3, 14)  # It begins none by itself.
    assert sum(span.value == 2 and not span.line for span in spans) >= own
    assert sum("# ASKED" in line for line in called) == 3
    assert all("gc.collect()" in line for line in called)


SIGNALS = """
import gc, pickle, signal, time
def stop(number, frame): raise TimeoutError(number)
signal.signal(signal.SIGALRM, stop)
large = pickle.dumps([{"number": number, "list": [number]} for number in range(200_000)])
kept = [[number] for number in range(400_000)]
for work in (lambda: pickle.loads(large), gc.collect):
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        try:
            work()
            time.sleep(5)
            print("lost")
        except TimeoutError as error:
            print("raised", error)
"""


def test_signals_while_garbage_is_collected_reach_the_program(train, run_bare) -> None:
    """Python drops what a signal handler raises in a Python function that the collector calls."""
    done = train(SIGNALS)
    assert (done.stdout, done.stderr) == (run_bare("import torch\n" + SIGNALS), "")
    assert any(span.value == 2 and span.line for span in done.journal.of("GC"))


def test_collections_of_other_threads_are_on_their_tracks(train) -> None:
    done = train("""
import gc, threading
thread = threading.Thread(target=gc.collect, name="collecting")
thread.start()
thread.join()
gc.collect()
""")
    tracks = {
        span.thread for span in done.journal.of("GC") if span.value == 2 and span.line or span.thread != 1
    }
    assert len(tracks) == 2


def test_collections_where_no_python_runs_are_recorded(train) -> None:
    done = train("""
import _thread, atexit, gc, time
atexit.register(gc.collect)
before = gc.get_stats()[2]["collections"]
_thread.start_new_thread(gc.collect, ())
while gc.get_stats()[2]["collections"] == before: time.sleep(0.01)
""")
    assert done.stderr == ""
    assert sum(span.value == 2 for span in done.journal.of("GC")) >= 1
