"""The program's own profiler is recorded: what it costs to stop, read and export it, and when it records."""

from __future__ import annotations

LOOP = """
from torch.profiler import ProfilerActivity, profile, schedule
CPU = [ProfilerActivity.CPU]
net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
def work():
    for _ in range(20): net(torch.ones(2, 8)).sum().backward()
"""


def labels(done) -> dict[str, int]:
    """Return the line that was seen for each call."""
    return {span.label: int(span.name.split("\x1f")[2]) for span in done.journal.of("PROFILER")}


def lines(done) -> dict[str, int]:
    """Return the number of each line with a comment in capitals."""
    program = (done.run_dir / "program.py").read_text().splitlines()
    return {line.rpartition("# ")[2]: number for number, line in enumerate(program, 1) if "# " in line}


def test_reading_and_exporting_a_recording_are_recorded_with_their_lines(train) -> None:
    done = train(
        LOOP
        + """
with profile(activities=CPU) as found: work()
events = found.key_averages()  # AVERAGES
words = events.table()  # TABLE
found.export_chrome_trace("trace.json")  # EXPORT
""",
        check=False,  # the profiler writes to standard error
    )
    assert done.returncode == 0, done.stderr
    seen, places = labels(done), lines(done)
    assert seen["key_averages"] == places["AVERAGES"]
    assert seen["table"] == places["TABLE"]
    assert seen["export_chrome_trace"] == places["EXPORT"]
    assert {"start", "stop"} <= set(seen)


def test_events_that_are_read_without_a_table_are_recorded(train) -> None:
    done = train(
        LOOP
        + """
with torch.autograd.profiler.profile() as found: work()
assert found.function_events  # EVENTS
""",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if hasattr(__import__("torch").autograd.profiler.profile, "_ensure_function_events"):
        assert labels(done)["events"] == lines(done)["EVENTS"]


def test_the_end_of_a_window_and_its_handler_are_in_the_step_of_the_profiler(train) -> None:
    done = train(
        LOOP
        + """
def ready(found): found.key_averages()
with profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=1, repeat=1), on_trace_ready=ready) as found:
    for _ in range(5):
        work()
        found.step()  # STEP
""",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = [span for span in done.journal.of("PROFILER") if span.label == "step"]
    assert labels(done)["step"] == lines(done)["STEP"]
    (read,) = [
        span for span in done.journal.of("PROFILER") if span.label == "key_averages" and "ready" in span.name
    ][:1]
    assert any(
        step.start <= read.start and read.start + read.duration <= step.start + step.duration
        for step in steps
    )


def test_a_profiler_that_is_not_enabled_is_none(train) -> None:
    done = train(
        LOOP
        + """
for _ in range(3):
    with torch.autograd.profiler.profile(enabled=False): work()
"""
    )
    assert done.journal.of("PROFILER") == []
    assert "user_profiler/line" not in done.journal.facts
    assert done.journal.facts["user_profiler"] == "False"


def test_a_profiler_that_is_not_enabled_does_not_end_the_window(train) -> None:
    done = train(
        LOOP
        + """
from perfwrap_recorder.gpu import profiler_window
given_way = []
profiler_window.give_way = lambda: given_way.append(1)
with torch.autograd.profiler.profile(enabled=False): work()
print(len(given_way))
with torch.autograd.profiler.profile(): work()
print(len(given_way))
""",
        check=False,
    )
    assert done.stdout.split() == ["0", "1"], done.stderr


def test_each_window_of_a_schedule_is_known(train) -> None:
    done = train(
        LOOP
        + """
from perfwrap_recorder.journal import facts
said = []
with profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=1, repeat=0)) as found:
    for _ in range(9):
        work()
        said.append(facts._written["user_profiler"])
        found.step()
print(*said)
""",
        check=False,
    )
    assert done.stdout.split() == ["False", "False", "True"] * 3, done.stderr


def test_the_program_prints_the_same(same) -> None:
    same(
        LOOP
        + """
with torch.autograd.profiler.profile(enabled=False) as nothing: work()
print(nothing)
try: torch.profiler.profile(schedule=schedule(wait=-1, warmup=0, active=1))
except AssertionError as error: print(error)
"""
    )
