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
