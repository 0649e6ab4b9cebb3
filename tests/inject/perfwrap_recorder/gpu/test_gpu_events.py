"""Events on a GPU become times on the host's clock, without any waiting; shown on a simulated GPU.

No test here has run on a real one: scripts/gpu_check.py is for that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

PROGRAM = f"""
sys.path.insert(0, {str(HERE.parent)!r})
from simulated_gpu import HandClock, LAUNCH_NS, SimulatedGpu
from perfwrap_recorder import guard
from perfwrap_recorder.gpu import gpu_events
open_journal()
clock = HandClock()

def watch(**settings):
    gpu = SimulatedGpu(clock, **settings)
    gpu_events.now = clock
    gpu_events.watch(gpu)
    return gpu

def phase(gpu, host_ns, gpu_ns, kind=journal_format.FORWARD):
    "A phase that takes the host and the GPU so long; returns when the GPU truly worked on it."
    pair = gpu_events.begin(kind)
    begun = clock.now
    truth = gpu.launch(gpu_ns)
    clock.pass_time(host_ns)
    pair = pair and gpu_events.end(pair)
    if pair: gpu_events.keep(pair, journal.text("net"))
    return truth, begun, clock.now

def end_step():
    journal.steps += 1"""

LEAD_BITS = 28


def leads(record) -> tuple[int, int]:
    """Return by how many microseconds the GPU was behind at both ends of a GPU span."""
    return (record.value >> 8) & ((1 << LEAD_BITS) - 1), record.value >> (8 + LEAD_BITS)


def truths(done) -> list[tuple[tuple[int, int], int, int]]:
    """Return what the program printed last: when the GPU worked, and when the host began and ended."""
    return eval(done.stdout.splitlines()[-1])


def test_a_gpu_that_waits_for_the_host_is_timed_to_a_few_microseconds(run) -> None:
    done = run(
        PROGRAM
        + """
gpu, seen = watch(), []
for _ in range(50):
    for kind in (journal_format.FORWARD, journal_format.BACKWARD, journal_format.OPTIMIZER):
        seen.append(phase(gpu, 300_000, 100_000, kind))
    end_step()
clock.pass_time(10**6)
gpu_events.ask_events()
assert not guard.failed, guard.failed
print(seen)
"""
    )
    spans = done.journal.of("GPU")
    assert [span.value & 0xFF for span in spans] == [36, 37, 38] * 50
    assert {span.label for span in spans} == {"net"}
    for span, ((begin, end), _, host_end) in list(zip(spans, truths(done), strict=True))[3:]:
        # Between the events lies the host's time, since the GPU waits for it: from idle to idle again.
        assert abs(span.start - begin) < 10_000
        assert abs(span.start + span.duration - host_end) < 15_000
        assert end < span.start + span.duration
        assert max(leads(span)) < 10


def test_how_far_the_host_runs_ahead_is_found_by_the_users_own_sync(run) -> None:
    done = run(
        PROGRAM
        + """
gpu, seen = watch(), []
for step in range(30):
    for kind in (journal_format.FORWARD, journal_format.BACKWARD, journal_format.OPTIMIZER):
        seen.append(phase(gpu, 100_000, 900_000, kind))
    end_step()
    if step % 5 == 4:  # loss.item()
        clock.now = gpu.free_at[gpu.stream] + 12_000
        gpu_events.reach(clock.now, 0)
clock.pass_time(10**7)
gpu_events.ask_events()
print(seen)
"""
    )
    spans = done.journal.of("GPU")
    assert len(spans) == 90
    for span, ((begin, end), host_begin, host_end) in list(zip(spans, truths(done), strict=True))[15:]:
        assert abs(span.start - begin) < 25_000
        assert abs(span.duration - (end - begin)) < 5_000
        ahead = leads(span)
        assert abs(ahead[0] - max(0, begin - host_begin) // 1000) < 25
        assert abs(ahead[1] - (end - host_end) // 1000) < 25
    # Five steps of 0.3 ms are launched while the GPU needs 13.5 ms for them.
    assert max(leads(span)[1] for span in spans) > 11_000


def test_a_read_that_does_not_wait_for_the_stream_is_no_bound(run) -> None:
    done = run(
        PROGRAM
        + """
gpu, seen = watch(), []
gpu.is_chosen = True  # as openreg: it reads values without its streams
for step in range(60):
    seen.append(phase(gpu, 100_000, 900_000 if step < 30 else 50_000))
    gpu_events.reach(clock.now, 0)
    clock.pass_time(600_000)
    gpu_events.reach(clock.now, 0)
    end_step()
clock.pass_time(10**8)
gpu_events.ask_events()
print(seen)
"""
    )
    spans = done.journal.of("GPU")
    assert len(spans) == 60
    assert not [record for record in done.journal.of("FACT") if record.name.endswith("clock_resets")]
    for span, ((begin, _), _, _) in list(zip(spans, truths(done), strict=True))[2:]:
        assert abs(span.start - begin) < 25_000


@pytest.mark.parametrize("drift", [5e-5, -5e-5])
def test_a_clock_that_drifts_is_followed_for_an_hour(run, drift: float) -> None:
    done = run(
        PROGRAM
        + f"""
gpu, seen = watch(drift={drift}), []
for _ in range(720):
    seen.append(phase(gpu, 300_000, 100_000))
    end_step()
    clock.pass_time(20_000_000)
    seen.append(phase(gpu, 300_000, 100_000))
    end_step()
    clock.pass_time(5 * 10**9)
gpu_events.ask_events()
print(seen)
"""
    )
    spans = done.journal.of("GPU")
    assert len(spans) == 1440
    for place, (span, ((begin, _), _, _)) in enumerate(zip(spans, truths(done), strict=True)):
        assert abs(span.start - begin) < 30_000, place
        assert abs(span.duration - 304_000) < 5_000


def test_without_any_sync_the_questions_alone_bound_the_clock(run) -> None:
    done = run(
        PROGRAM
        + """
gpu, seen = watch(), []
for step in range(200):
    for kind in (journal_format.FORWARD, journal_format.BACKWARD, journal_format.OPTIMIZER):
        seen.append(phase(gpu, 300_000, 310_000, kind))
        end_step()
clock.pass_time(10**9)
gpu_events.ask_events()
print(seen)
"""
    )
    spans = done.journal.of("GPU")
    assert len(spans) == 600
    for span, ((begin, _), _, _) in list(zip(spans, truths(done), strict=True))[300:]:
        assert abs(span.start - begin) < 310_000  # one phase: no event was asked more often


def test_nothing_waits_and_the_pool_is_used_again(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
for _ in range(1000):
    phase(gpu, 300_000, 100_000)
    end_step()
print(sorted(set(gpu.calls)), gpu.events)
"""
    )
    assert done.stdout == "['elapsed_time', 'make_event', 'query', 'record'] 5\n"


def test_too_many_pairs_under_way_are_dropped_and_counted(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
gpu.launch(10**10)
for _ in range(300):
    phase(gpu, 1_000, 1_000)
    end_step()
print(gpu.events)
clock.pass_time(10**11)
gpu_events.ask_events()
"""
    )
    assert done.stdout == "512\n"
    assert len(done.journal.of("GPU")) == 256
    assert done.journal.facts["gpu_time/0/dropped"] == "44"


def test_streams_and_the_work_on_them_are_distinguished(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
for _ in range(3):
    for stream in (0, 7):
        gpu.stream = (stream, 0, 1)
        phase(gpu, 100_000, 50_000 + stream)
    end_step()
clock.pass_time(10**9)
gpu_events.ask_events()
"""
    )
    tracks = {record.thread: record.name for record in done.journal.of("THREAD")}
    assert [tracks[span.thread] for span in done.journal.of("GPU")] == [
        "cuda/0 stream 0",
        "cuda/0 stream 1",
    ] * 3


def test_a_sync_of_another_stream_says_nothing(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
phase(gpu, 1_000, 10**9)
gpu.stream = (7, 0, 1)
gpu_events.reach(clock.now, 0)
(device,) = gpu_events._devices.values()
print(device.pending[-1].not_after)
gpu_events.reach(clock.now, 3)
"""
    )
    assert done.stdout == "None\n"


def test_nothing_is_asked_of_cuda_before_the_program_has_started_it(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
gpu.initialized = False
phase(gpu, 1_000, 1_000)
gpu_events.ask_events()
print(gpu.calls)
"""
    )
    assert done.stdout == "[]\n"
    assert "probe/gpu_time" not in {record.name for record in done.journal.of("COVERAGE")}


@pytest.mark.parametrize("how", ["gpu.capturing = True", "gpu_events.captures.add(1)"])
def test_nothing_is_asked_or_recorded_while_a_graph_is_captured(run, how: str) -> None:
    done = run(
        PROGRAM
        + f"""
gpu = watch()
phase(gpu, 1_000, 1_000)
clock.pass_time(10**6)
pair = gpu_events.begin(36)
before = len(gpu.calls)
{how}
print(gpu_events.end(pair))
phase(gpu, 1_000, 1_000)
gpu_events.reach(clock.now, 0)
end_step()
gpu_events.ask_events()
print(gpu.calls[before:])
gpu.capturing = False
gpu_events.captures.clear()
gpu_events.ask_events()
"""
    )
    assert done.stdout == "None\n[]\n"
    assert len(done.journal.of("GPU")) == 1


@pytest.mark.parametrize("name", ["make_event", "record", "query", "elapsed_time"])
def test_the_first_error_of_the_api_turns_the_probe_off(run, name: str) -> None:
    done = run(
        PROGRAM
        + f"""
gpu = watch()
gpu.failing = {name!r}
for _ in range(5):
    phase(gpu, 300_000, 100_000)
    end_step()
before = len(gpu.calls)
gpu.failing = None
phase(gpu, 1_000, 1_000)
print(len(gpu.calls) - before, guard.failed)
"""
    )
    assert done.stdout == f"0 {{'gpu_time': 'RuntimeError: CUDA error: {name}'}}\n"
    notes = [done.journal.texts.get(record.value) for record in done.journal.of("COVERAGE")]
    assert f"failed: RuntimeError: CUDA error: {name}" in notes


def test_only_steps_in_detail_are_timed_and_what_is_found_later_is_written_all_the_same(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
phase(gpu, 300_000, 100_000)
journal.summing = True
phase(gpu, 300_000, 100_000)
end_step()
gpu_events.ask_events()
journal.summing = False
"""
    )
    assert len(done.journal.of("GPU")) == 1
    assert not done.journal.of("SUM GPU")


def test_a_child_of_a_fork_leaves_cuda_alone(run) -> None:
    done = run(
        PROGRAM
        + """
gpu = watch()
journal.after_fork.add(gpu_events.begin_in_child)
phase(gpu, 300_000, 10**9)
pair = gpu_events.begin(36)
before = len(gpu.calls)
if os.fork() == 0:
    gpu.initialized = False  # as torch.cuda.is_initialized() says in a child
    assert gpu_events.end(pair) is None
    phase(gpu, 1_000, 1_000)
    gpu_events.ask_events()
    gpu_events.release()
    assert len(gpu.calls) == before and not guard.failed
    os._exit(0)
print(os.wait()[1])
"""
    )
    assert done.stdout == "0\n"


def test_a_clock_that_jumped_is_restarted(run) -> None:
    done = run(
        PROGRAM
        + """
gpu, seen = watch(), []
for step in range(6):
    seen.append(phase(gpu, 300_000, 100_000))
    end_step()
    clock.pass_time(10**6)
    if step == 2:
        gpu_events.ask_events()
        for device in gpu_events._devices.values(): device.base.reached -= 10**10
gpu_events.ask_events()
print(seen)
"""
    )
    spans = done.journal.of("GPU")
    assert done.journal.facts["gpu_time/0/clock_resets"] == "1"
    assert abs(spans[-1].start - truths(done)[-1][0][0]) < 500_000
