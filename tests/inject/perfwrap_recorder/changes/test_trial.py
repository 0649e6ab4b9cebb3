"""A trial ends its process after the wanted steps, writes nothing, and says what it did."""

from __future__ import annotations

import math
import signal
import sys
import types
from pathlib import Path

import pytest
from perfwrap.launch.options import Trial

TRAIN = """
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
loader = torch.utils.data.DataLoader(Data(), 4, num_workers={workers})
def pids(): return [worker.pid for worker in multiprocessing.active_children()]
import multiprocessing
"""


def test_the_process_leaves_as_by_ctrl_c_and_takes_its_workers_along(tried) -> None:
    program = (
        TRAIN.format(workers=2)
        + """
import atexit
children = []
atexit.register(lambda: print("at exit", flush=True))
try:
    for _ in range(10**9):
        for x, y in loader:
            children[:] = children or pids()
            optimizer.zero_grad()
            nn.CrossEntropyLoss()(model(x), y).backward()
            optimizer.step()
        torch.save(model.state_dict(), "checkpoint")
finally:
    print(*children, flush=True)
"""
    )
    done = tried(program, trial=Trial(("prefetch=1",), 25, "10", 0.0), check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    pids, last = done.stdout.splitlines()
    assert last == "at exit"
    assert len(pids.split()) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.split())
    assert not (done.script.parent / "checkpoint").exists()
    facts = {key: value for key, value in done.facts.items() if key.startswith("trial/")}
    assert facts["trial/end"] == "enough steps"
    assert (facts["trial/first_step"], facts["trial/last_step"]) == ("11", "35")
    assert facts["trial/left_by"] == "KeyboardInterrupt"
    assert facts["trial/skipped_writes"] == "2"
    assert math.isfinite(float(facts["trial/loss"]))
    assert int(facts["trial/begin_ns"]) < int(facts["trial/end_ns"])
    assert done.said("prefetch") == "applied"


def test_a_loop_that_ends_by_itself_ends_as_ever(tried) -> None:
    program = (
        TRAIN.format(workers=0)
        + """
value = train(loader, model, optimizer, 30)
torch.save(1, "checkpoint")
print(repr(value.item()), os.path.exists("checkpoint"))
"""
    )
    done = tried(program, trial=Trial((), 500, "10", 0.0, writes=True))
    loss, is_written = done.stdout.split()
    assert is_written == "True"
    assert done.facts["trial/end"] == "loop ended"
    assert (done.facts["trial/first_step"], done.facts["trial/last_step"]) == ("11", "30")
    assert done.facts["trial/loss"] == loss
    assert done.facts["trial/skipped_writes"] == "0"
    assert "trial/left_by" not in done.facts


def test_a_program_that_catches_it_is_interrupted_again(tried) -> None:
    program = (
        TRAIN.format(workers=0)
        + """
for _ in range(3):
    try: train(loader, model, optimizer, 100)
    except KeyboardInterrupt: print("caught")
"""
    )
    done = tried(program, trial=Trial((), 10, "5", 0.0))
    assert done.stdout == "caught\n" * 3
    assert done.facts["trial/last_step"] == "15"


def test_a_program_without_an_optimizer_has_steps_by_backward_passes(tried) -> None:
    program = """
weight = nn.Parameter(torch.ones(8))
for count in range(10**9):
    (weight * torch.ones(8)).sum().backward()
"""
    done = tried(program, trial=Trial((), 20, "auto", 0.0), check=False)
    assert done.returncode == -signal.SIGINT
    assert done.facts["trial/end"] == "enough steps"


def test_micro_batches_and_evaluations_before_training_are_no_steps(tried) -> None:
    program = (
        TRAIN.format(workers=0)
        + """
with torch.no_grad():
    for _ in range(100): model(torch.ones(4, 8))
for count in range(16 * 5):
    model(torch.ones(4, 8)).sum().backward()
    if count % 16 == 15: optimizer.step()
print("done")
"""
    )
    assert tried(program, trial=Trial((), 50, "5", 0.0)).stdout == "done\n"


def test_steps_made_by_another_thread_end_too(tried) -> None:
    program = (
        TRAIN.format(workers=0)
        + """
import threading
thread = threading.Thread(target=train, args=(loader, model, optimizer))
thread.start()
thread.join()
"""
    )
    done = tried(program, trial=Trial((), 10, "5", 0.0), check=False)
    assert done.returncode != 0
    assert done.facts["trial/left_by"] == "interrupt_main"


def test_all_ranks_stop_at_the_same_step_and_torchrun_ends_well(tried) -> None:
    program = (
        TRAIN.format(workers=0)
        + """
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
train(loader, model, optimizer)
"""
    )
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=2",
    ]
    done = tried(program, trial=Trial(("bf16", "channels-last"), 10, "auto", 0.5), words=words)
    assert {name: found["trial/last_step"] for name, found in done.ranks.items()} == {"0": "30", "1": "30"}
    assert {found["trial/left_by"] for found in done.ranks.values()} == {"SystemExit"}
    assert {found["change/bf16/status"] for found in done.ranks.values()} == {"applied"}


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch, repository: Path) -> types.ModuleType:
    """The recorder's module, in this process."""
    monkeypatch.syspath_prepend(str(repository / "inject"))
    for name in [name for name in sys.modules if name.startswith("perfwrap_recorder")]:
        monkeypatch.delitem(sys.modules, name)
    from perfwrap_recorder.experiments import trial

    return trial


def last_step(trial, plan, times) -> int:
    """Return the number of the step at which a trial ends, 0 for none."""
    moment = 0
    for number, time in enumerate(times, 1):
        moment += time
        if plan.learn(number, moment):
            return number
    return 0


def test_a_loop_that_ends_before_its_steps_took_long_enough_is_measured_whole(tried) -> None:
    program = TRAIN.format(workers=0) + "\ntrain(loader, model, optimizer, 60)\nprint('done')\n"
    done = tried(program, trial=Trial((), 10, "5", 0.0, seconds=60.0))
    assert done.stdout == "done\n"
    facts = done.facts
    assert (facts["trial/end"], facts["trial/first_step"], facts["trial/last_step"]) == (
        "enough steps",
        "6",
        "60",
    )


def test_warm_up_lasts_until_steps_are_steady(trial) -> None:
    calm = trial.Trial(20)
    assert last_step(trial, calm, [100] * 99) == 30
    late = trial.Trial(20)
    assert last_step(trial, late, [100] * 8 + [1000] + [100] * 99) == 34
    never = trial.Trial(20)
    assert last_step(trial, never, [100, 100, 300] * 99) == trial.MAX_WARM_UP_STEPS + 20


def test_steady_steps_are_precise_early_and_noisy_ones_are_not(trial) -> None:
    plan = trial.Trial(200, precision=0.02)
    assert last_step(trial, plan, [100] * 300) == trial.WARM_UP_STEPS + trial.MIN_STEPS
    assert plan.end == trial.PRECISE
    noisy = trial.Trial(100, "10", precision=0.02)
    assert last_step(trial, noisy, [100, 130, 70, 115, 85] * 60) == 110
    assert noisy.end == trial.ENOUGH
    together = trial.Trial(50, precision=0.02, has_others=True)
    assert last_step(trial, together, [100] * 300) == trial.RANKS_WARM_UP_STEPS + 50


def test_short_steps_go_on_until_they_took_long_enough(trial) -> None:
    short = trial.Trial(20, "10", seconds=1.0)
    assert last_step(trial, short, [10_000_000] * 200) == 110
    assert short.end == trial.ENOUGH
    long = trial.Trial(20, "10", seconds=1.0)
    assert last_step(trial, long, [100_000_000] * 200) == 30
    tiny = trial.Trial(20, "10", seconds=1.0)
    assert last_step(trial, tiny, [1_000] * 6_000) == 10 + trial.MOST_STEPS
    together = trial.Trial(20, "10", has_others=True, seconds=1.0)
    assert last_step(trial, together, [10_000_000] * 200) == 30


def test_a_trial_begins_again_when_something_else_turns_out_to_end_steps(trial) -> None:
    plan = trial.Trial(5, "3")
    assert last_step(trial, plan, [10] * 6) == 0
    assert last_step(trial, plan, [10] * 20) == 8


def test_the_interval_of_the_median_is_that_of_order_statistics(trial) -> None:
    low, high, median = trial.median_interval(range(100))
    assert (low, high, median) == (40, 59, 50)
