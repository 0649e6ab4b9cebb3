"""A run of any length fits its budget, and what is left out of the detail stands in exact sums."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NO_PAUSES = """
from perfwrap_recorder.journal import thinning
thinning.cost_share = Settings.max_overhead = 1e9
"""
STEPS = f"""{NO_PAUSES}
open_journal()
truth = {{}}
def say(kind, name, duration):
    number = journal.text(name)
    count, total = truth.get((kind, name), (0, 0))
    truth[kind, name] = count + 1, total + duration
    journal.span(clock.now(), duration, 0, number, kind)
"""


def truth_of(stdout: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what the program counted itself."""
    return {(kind, name): (count, total) for kind, name, count, total in eval(stdout)}


TELL = """
names = {value: name for name, value in vars(journal_format).items() if name.isupper() and isinstance(value, int)}
print([(names[kind], name, count, total) for (kind, name), (count, total) in truth.items()])
"""


def test_a_long_run_fits_its_budget_with_exact_sums(run, interpreter: str) -> None:
    done = run(
        STEPS
        + """
for step in range(30_000):
    say(journal_format.DATA, "loader", 5)
    say(journal_format.FORWARD, "model", step % 7)
    say(journal_format.SYNC, "item %d" % (step % 3), 1)
    say(journal_format.OPTIMIZER, "SGD#1", 2)
    journal.end_step(journal_format.OPTIMIZER, 1, clock.now())
"""
        + TELL,
        python=interpreter,
        budget=512 << 10,
    )
    read = done.journal
    assert read.path.stat().st_size <= 512 << 10
    assert read.totals() == truth_of(done.stdout)
    assert not read.of("LOST")
    strides = [found.value for found in read.of("THIN")]
    assert strides[0] == 0 and max(strides) >= 4
    assert [bool(value) for value in strides[:10]] == [False, True] * 5


def test_stretches_of_detail_hold_whole_neighbouring_steps(run) -> None:
    done = run(
        STEPS
        + """
for step in range(20_000):
    say(journal_format.FORWARD, "model", 3)
    say(journal_format.OPTIMIZER, "SGD#1", 2)
    journal.end_step(journal_format.OPTIMIZER, 1, clock.now())
""",
        budget=256 << 10,
    )
    read = done.journal
    thins = read.of("THIN")
    stretches = [
        (begin.start, end.start) for begin, end in zip(thins, thins[1:], strict=False) if begin.value > 0
    ]
    assert len(stretches) > 20
    for begin, end in stretches[:-1]:
        kinds = [found.kind for found in read.of("FORWARD", "OPTIMIZER") if begin <= found.start < end]
        assert kinds == ["FORWARD", "OPTIMIZER"] * 4
    # A sum belongs to the stretch that began at its start.
    starts = {found.start for found in thins if found.value == 0}
    assert {found.start for found in read.records if found.kind.startswith("SUM")} <= starts


def test_rare_spans_stay_in_detail_up_to_a_limit(run) -> None:
    done = run(
        STEPS
        + """
for step in range(20_000):
    say(journal_format.FORWARD, "model", 3)
    say(journal_format.OPTIMIZER, "SGD#1", 2)
    if step % 1000 == 500:
        say(journal_format.SAVE, "torch.save", 1000)
    if step > 19_600:
        say(journal_format.LOAD, "torch.load", 10)
        journal.instant(clock.now(), float("nan"), journal.text("loss"), journal_format.NON_FINITE)
    journal.end_step(journal_format.OPTIMIZER, 1, clock.now())
"""
        + TELL,
        budget=256 << 10,
    )
    assert len(done.journal.of("SAVE")) == 20
    assert done.journal.of("SUM LOAD")
    assert 16 <= len(done.journal.of("NON_FINITE")) < 399
    assert done.journal.totals() == truth_of(done.stdout)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    budget=st.integers(32 << 10, 200 << 10),
    pattern=st.lists(
        st.tuples(st.sampled_from(["DATA", "FORWARD", "SYNC", "OPTIMIZER", "SAVE", "GC"]), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    ),
    ends=st.sets(st.sampled_from(["DATA", "FORWARD", "OPTIMIZER"])),
    repeats=st.integers(1, 4_000),
)
def test_sums_and_detail_always_add_up(run, tmp_path, budget, pattern, ends, repeats) -> None:
    for old in (tmp_path / "journal").glob("*"):
        old.unlink()
    done = run(
        STEPS
        + f"""
for step in range({repeats}):
    for kind, number in {pattern!r}:
        say(getattr(journal_format, kind), kind.lower() + str(number), number)
        if kind in {ends!r}:
            journal.end_step(getattr(journal_format, kind), number, clock.now())
"""
        + TELL,
        budget=budget,
    )
    read = done.journal
    assert read.path.stat().st_size <= budget
    assert not read.of("LOST")
    assert read.totals() == truth_of(done.stdout)


def test_sums_of_several_threads_are_exact(run, interpreter: str) -> None:
    done = run(
        NO_PAUSES
        + """
import threading
open_journal()
sys.setswitchinterval(1e-5)
def work(number):
    name = journal.text("t%d" % (number % 3))
    for value in range(6_000):
        journal.span(clock.now(), value, 0, name, journal_format.SYNC)
        journal.end_step(journal_format.OPTIMIZER, number, clock.now())
workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for worker in workers: worker.start()
for worker in workers: worker.join()
""",
        python=interpreter,
        budget=128 << 10,
    )
    assert done.journal.path.stat().st_size <= 128 << 10
    assert done.journal.of("THIN")
    each = (12_000, 2 * sum(range(6_000)))
    assert done.journal.totals() == {("SYNC", f"t{number}"): each for number in range(3)}


@pytest.mark.parametrize("held_up_in", ["_switch_alone", "_begin_sums"])
def test_a_thread_held_up_while_it_switches_costs_no_records(run, interpreter: str, held_up_in: str) -> None:
    """The scheduler may leave a thread out in the middle of a switch, while others go on recording."""
    done = run(
        NO_PAUSES
        + f"""
import threading, time
from perfwrap_recorder.journal import switching
open_journal()
switch, name = switching.{held_up_in}, journal.text("t")
def switch_slowly(*arguments):
    time.sleep(0.02)
    switch(*arguments)
    time.sleep(0.02)
switching.{held_up_in} = switch_slowly
def work():
    for value in range(6_000):
        journal.span(clock.now(), value, 0, name, journal_format.SYNC)
workers = [threading.Thread(target=work) for number in range(3)]
for worker in workers: worker.start()
for worker in workers: worker.join()
""",
        python=interpreter,
        budget=128 << 10,
    )
    assert not done.journal.of("LOST")
    assert done.journal.totals() == {("SYNC", "t"): (18_000, 3 * sum(range(6_000)))}


def test_sums_survive_a_kill(run) -> None:
    done = run(
        """
open_journal()
name = journal.text("step")
for number in range(30_000):
    journal.span(clock.now(), 2, 0, name, journal_format.SYNC)
os.kill(os.getpid(), 9)
""",
        budget=64 << 10,
        check=False,
    )
    assert done.journal.totals() == {("SYNC", "step"): (30_000, 60_000)}


def test_a_smaller_budget_can_be_kept_to_later(run) -> None:
    done = run(
        """
open_journal()
lifecycle.reduce_budget(16)
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, 1, name, journal_format.SYNC)
""",
        budget=4 << 20,
    )
    assert done.journal.path.stat().st_size <= (4 << 20) // 16
    assert done.journal.totals() == {("SYNC", "x"): (40_000, 40_000)}


WEEK = """
open_journal()
length, moment = {length}, clock.now()
looks = []
def look():
    looks.append(moment)
    for metric in ("allocated_bytes", "reserved_bytes"):
        journal.sample("gpu/0", metric, float(len(looks)))
journal.look_often(look)
name = journal.text("SGD#1")
for step in range(60_000):
    journal.span(moment, 1000, 0, name, journal_format.OPTIMIZER)
    moment += length
    journal.end_step(journal_format.OPTIMIZER, 1, moment)
print(len(looks), (moment - looks[-1]) / (60_000 * length))
"""


def test_samples_and_clocks_of_a_week_leave_room_for_its_steps(run) -> None:
    done = run(WEEK.format(length=10_000_000_000), budget=256 << 10)
    looks, unwatched = done.stdout.split()
    assert not done.journal.of("LOST")
    assert done.journal.totals()["OPTIMIZER", "SGD#1"][0] == 60_000
    assert 1_000 < int(looks) < 10_000
    assert float(unwatched) < 0.2
    assert len(done.journal.of("CLOCK")) < 4_000


def test_with_room_it_is_looked_ten_times_a_second(run) -> None:
    done = run(WEEK.format(length=10_000_000), budget=16 << 20)
    assert abs(int(done.stdout.split()[0]) - 6_000) <= 1
