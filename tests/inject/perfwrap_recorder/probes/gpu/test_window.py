"""A window of torch's own profiler: when it is recorded, when not, and that the program does not notice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from ..conftest import INSTALL

LOOP = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters())
inputs = torch.randn(8, 16)
def step():
    optimizer.zero_grad()
    loss = net(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss
"""


def ask(window: str = "2@5", **more: str) -> str:
    """Return lines that ask for a window, to stand before the probes are installed."""
    settings = {"window": window, "window_detail": "", "window_ranks": "0", **more}
    return "".join(f"Settings.{key} = {value!r}\n" for key, value in settings.items())


@pytest.fixture
def train(warm_run):
    """Run a program under the recorder with a window asked for; nothing may be printed to standard error."""
    run = warm_run

    def train(program: str, window: str = "2@5", **options):
        for old in (run.folder / "journal").glob("*"):
            old.unlink()
        more = options.pop("more", {})
        check = "\nassert not guard.failed, guard.failed\n"
        return run(ask(window, **more) + INSTALL + LOOP + program + check, **options)

    return train


@pytest.fixture
def bare(warm_python, tmp_path):
    """Run the same program without the recorder."""

    def bare(program: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "bare.py"
        script.write_text("import os, sys\nimport torch\ntorch.set_num_threads(1)\n" + LOOP + program)
        return warm_python.run(script, cwd=tmp_path)

    return bare


def notes(finished) -> list[str]:
    """Return what the coverage of the window says, in order."""
    return [
        finished.journal.texts[found.value]
        for found in finished.journal.of("COVERAGE")
        if found.name == "torch_profiler"
    ]


def trace(finished) -> dict:
    """Return the one file that was exported."""
    (path,) = (finished.run_dir / "tools").iterdir()
    return json.loads(path.read_text())


def names(content: dict) -> list[str]:
    return [event["name"] for event in content["traceEvents"] if event.get("ph") == "X"]


def test_the_steps_that_were_requested_are_taken_and_nothing_else(train) -> None:
    done = train("for _ in range(30): step()")
    assert re.fullmatch(r"steps 6 to 7: tools/window-host-\d+\.json", *notes(done))
    found = names(trace(done))
    assert [name for name in found if name.startswith("ProfilerStep")] == ["ProfilerStep#6", "ProfilerStep#7"]
    assert sum(name.startswith("Optimizer.step") for name in found) == 2
    (cover,) = (found for found in done.journal.of("COVERAGE") if found.name == "torch_profiler")
    ends = [found.start + found.duration for found in done.journal.of("OPTIMIZER")]
    assert len(ends) == 30
    assert ends[4] < cover.start < ends[5]
    assert ends[6] < cover.start + cover.duration < ends[7]
    own = [found.name for found in done.journal.of("PERFWRAP") if found.name.startswith("window")]
    assert own == ["window start", "window stop", "window export"]


def test_by_itself_three_steps_are_taken_after_the_warm_up(train) -> None:
    done = train("for _ in range(300): step()", "steady")
    (note,) = notes(done)
    first, last = map(int, re.match(r"steps (\d+) to (\d+): tools", note).groups())
    assert first > 10
    assert last == first + 2


EVALUATE = "with torch.no_grad():\n    for _ in range({count}): net(inputs)\n"


@pytest.mark.parametrize("evaluated", [40, 300])
def test_a_first_evaluation_is_not_what_is_taken(train, evaluated: int) -> None:
    done = train(EVALUATE.format(count=evaluated) + "for _ in range(300): step()", "steady")
    assert re.fullmatch(r"steps \d+ to \d+: tools/window-host-\d+\.json", *notes(done))
    assert sum(name.startswith("Optimizer.step") for name in names(trace(done))) == 3


def test_a_program_that_only_evaluates_has_one(train) -> None:
    done = train("del optimizer\n" + EVALUATE.format(count=2300), "steady")
    assert re.fullmatch(r"steps \d+ to \d+: tools/window-host-\d+\.json", *notes(done))


def test_without_a_gpu_there_is_none_by_default(train) -> None:
    done = train("for _ in range(300): step()", "auto")
    assert notes(done) == []
    assert not list(done.run_dir.glob("tools/*"))


@pytest.mark.timing
def test_the_worst_of_many_steps_is_kept(train) -> None:
    done = train("import time\nfor i in range(130):\n    if i == 60: time.sleep(2)\n    step()", "worst")
    assert notes(done)[0].startswith("step 61: tools/")
    assert "ProfilerStep#61" in names(trace(done))


def test_details_are_noted_where_they_are_requested(train) -> None:
    more = {"window_detail": "shapes,memory,stack,flops"}
    # With memory torch itself says a line on standard error.
    content = trace(train("for _ in range(30): step()", more=more, check=False))
    arguments = {key for event in content["traceEvents"] for key in event.get("args", {})}
    assert "Input Dims" in arguments
    assert any("LOOP" in name or "program.py" in name for name in names(content))
    assert any(event["name"] == "[memory]" for event in content["traceEvents"])


def test_results_and_random_numbers_are_those_of_a_bare_run(train, bare) -> None:
    tell = "print(last.item(), torch.rand(3).tolist(), net[0].weight.sum().item())\n"
    program = "for _ in range(30): last = step()\n" + tell
    done = train(program)
    assert notes(done)
    assert done.stdout == bare(program).stdout


OWN = """
import torch.profiler as tp
traces = []
def ready(profile):
    names = sorted(event.name for event in profile.events() if not event.name.startswith("aten::"))
    traces.append([profile.step_num, names, len(profile.events())])
"""

OWN_WAYS = {
    "schedule": OWN
    + """
with tp.profile(activities=[tp.ProfilerActivity.CPU], schedule=tp.schedule(wait=1, warmup=1, active=2, repeat=2),
                on_trace_ready=ready) as profile:
    for _ in range(12):
        step()
        profile.step()
print(traces)
""",
    "plain": OWN
    + """
with tp.profile(activities=[tp.ProfilerActivity.CPU], record_shapes=True) as profile:
    for _ in range(3): step()
ready(profile)
print(traces, torch.autograd._profiler_enabled())
""",
    "autograd": """
with torch.autograd.profiler.profile(record_shapes=True) as profile:
    for _ in range(3): step()
print(sorted((event.key, event.count) for event in profile.key_averages()))
""",
    "start and stop": OWN
    + """
profile = tp.profile(activities=[tp.ProfilerActivity.CPU])
profile.start()
for _ in range(3): step()
profile.stop()
ready(profile)
print(traces)
""",
}


@pytest.mark.parametrize(
    ("way", "before"),
    [("schedule", 0), ("schedule", 5), ("plain", 6), ("autograd", 6), ("start and stop", 5), ("plain", 30)],
)
def test_a_profiler_of_the_programs_works_as_bare_whenever_it_begins(train, bare, way, before) -> None:
    """Before the window, in the midst of it, and after it."""
    program = f"for _ in range({before}): step()\n" + OWN_WAYS[way] + "for _ in range(40): step()\n"
    expected = bare(program)
    assert expected.returncode == 0, expected.stderr
    done = train(program, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected.stdout
    stamp = re.compile(r"\S+ \S+ \d+:\d+ ")
    assert stamp.sub("", done.stderr) == stamp.sub("", expected.stderr)
    said = notes(done)[-1]
    assert said.startswith("steps 6 to 7" if before == 30 else "no window: the program profiles itself")


def test_another_thread_that_begins_to_profile_has_its_trace_though_the_windows_thread_waits_for_it(
    train,
) -> None:
    done = train(
        """
import threading
def profile():
    with torch.autograd.profiler.profile() as found:
        begun.set()
        inputs @ inputs.T
    counts.append(sum(event.key == "aten::matmul" for event in found.key_averages()))
counts, begun = [], threading.Event()
for i in range(60):
    step()
    if i == 5:
        other = threading.Thread(target=profile)
        other.start()
        begun.wait()
other.join()
print(counts, torch.autograd._profiler_enabled())
""",
        check=False,
    )
    assert done.stdout == "[1] False\n", (done.returncode, done.stderr)
    assert notes(done) == ["no window: the program profiles itself"]


@pytest.mark.parametrize("ends", ["", "os.fork() or os._exit(0); os.wait()"])
def test_a_program_that_ends_or_forks_after_another_thread_has_profiled_does_so_as_bare(
    train, ends: str
) -> None:
    done = train(
        f"""
import threading
def profile():
    with torch.autograd.profiler.profile() as found: inputs @ inputs.T
    counts.append(sum(event.key == "aten::matmul" for event in found.key_averages()))
counts = []
for i in range(6): step()
other = threading.Thread(target=profile)
other.start()
other.join()
{ends}
print(counts)
""",
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[1]\n"), done.stderr


@pytest.mark.parametrize(
    "variable", ["NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "KINETO_USE_DAEMON"]
)
def test_there_is_none_where_another_tool_watches(train, variable: str) -> None:
    done = train(f"os.environ[{variable!r}] = '1'\nfor _ in range(20): step()")
    assert notes(done) == [f"no window: another tool watches this process: {variable} is set"]
    assert not (done.run_dir / "tools").exists()


def test_only_the_first_of_several_ranks_has_one_unless_all_are_requested(train) -> None:
    program = "for _ in range(20): step()"
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2"}
    assert notes(train(program, env=environment)) == ["no window: rank 0 takes it"]


def test_every_rank_has_one_where_all_are_requested(train) -> None:
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2"}
    done = train("for _ in range(20): step()", env=environment, more={"window_ranks": "all"})
    assert notes(done)[0].startswith("steps 6 to 7")


def test_too_few_steps_are_said(train) -> None:
    done = train("for _ in range(4): step()", "steady")
    assert notes(done) == ["no window: the program ended after 4 steps, before the window"]


def test_of_slow_steps_a_part_is_taken(train) -> None:
    done = train(
        "from perfwrap_recorder.gpu import profiler_window\nprofiler_window.LONG_NS = 1\nfor _ in range(300): step()",
        "steady",
    )
    assert re.match(r"a part of step \d+: tools/", notes(done)[0])
    assert "aten::linear" in names(trace(done))


def test_a_mark_of_the_programs_that_began_in_the_window_may_end_in_its_own_profiler(train) -> None:
    done = train(
        """
from torch.autograd.profiler import record_function
for round in range(5): step()
mark = record_function("epoch")
for _ in range(20):
    with record_function("batch"): step()
    if round == 4 and _ == 0:
        mark.__enter__()
with torch.profiler.profile() as profile:
    step()
    mark.__exit__(None, None, None)
    for _ in range(200): step()
print(len([event for event in profile.events() if event.name == "epoch"]))
""",
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_program_that_ends_in_the_middle_leaves_the_steps_that_it_had(train) -> None:
    done = train("for _ in range(6): step()\nnet(inputs)")
    assert notes(done)[0].startswith("step 6: tools/")
    assert names(trace(done)).count("ProfilerStep#6") == 1


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "raise SystemExit(3)", "1 / 0"])
def test_a_program_that_ends_in_the_middle_ends_as_bare(train, bare, end: str) -> None:
    program = f"for _ in range(6): step()\nprint('so far', flush=True)\n{end}\n"
    expected, done = bare(program), train(program, check=False)
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)
    line = re.compile(r"line \d+|File .*")
    assert line.sub("", done.stderr) == line.sub("", expected.stderr)


def test_a_fork_in_the_middle_ends_the_window_and_no_child_is_profiled(train) -> None:
    done = train(
        """
def count():
    torch.ones(1) + 1
    return os.getpid() != parent and torch.autograd._profiler_enabled()
parent = os.getpid()
for _ in range(6): step()
child = os.fork()
if child == 0:
    os._exit(10 + count())
print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
for _ in range(40): step()
"""
    )
    assert done.stdout == "10\n"
    said = [
        found
        for journal in done.journals
        for found in journal.of("COVERAGE")
        if found.name == "torch_profiler"
    ]
    assert said


def test_workers_of_a_loader_are_not_profiled(train) -> None:
    done = train(
        """
class Set(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index):
        return torch.tensor(float(torch.autograd._profiler_enabled()))
found = 0.0
for epoch in range(8):
    for batch in torch.utils.data.DataLoader(Set(), batch_size=4, num_workers=2):
        found += batch.sum().item()
        step()
print(found)
"""
    )
    assert done.stdout == "0.0\n"
    assert any("steps" in note or "step" in note for note in _all_notes(done))


def _all_notes(done) -> list[str]:
    return [
        journal.texts[found.value]
        for journal in done.journals
        for found in journal.of("COVERAGE")
        if found.name == "torch_profiler"
    ]


def test_a_handler_of_a_signal_that_raises_in_the_middle_is_the_programs_own(train) -> None:
    done = train(
        """
import signal
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGUSR1, interrupt)
caught = 0
for i in range(40):
    try:
        step()
        if 4 <= i <= 8: os.kill(os.getpid(), signal.SIGUSR1)
        else: continue
        for _ in range(1000): pass
    except KeyboardInterrupt:
        caught += 1
print(caught, torch.autograd._profiler_enabled())
"""
    )
    assert done.stdout == "5 False\n"


def test_after_a_kill_in_the_middle_nothing_is_where_a_trace_would(train) -> None:
    done = train("for _ in range(6): step()\nos.kill(os.getpid(), 9)", check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (done.run_dir / "tools").exists()


def test_a_folder_that_cannot_be_written_is_said_and_harms_nothing(train) -> None:
    done = train("open(sys.argv[1] + '/tools', 'w').close()\nfor _ in range(30): step()\nprint('done')")
    assert done.stdout == "done\n"
    assert notes(done) == ["steps 6 to 7: could not be exported"]


def test_detail_lasts_through_the_window_however_short_the_steps(train) -> None:
    program = "from perfwrap_recorder.journal import thinning\nfor _ in range(600): step()"
    done = train(program, "40@240")
    assert notes(done)[0].startswith("steps 241 to 280")
    turns = [found.start for found in done.journal.of("THIN") if found.value < 0]
    (cover,) = (found for found in done.journal.of("COVERAGE") if found.name == "torch_profiler")
    assert not any(cover.start < turn < cover.start + cover.duration for turn in turns)


def test_a_compiled_loop_has_the_same_graphs_and_recompiles_nothing(train) -> None:
    program = """
from torch._dynamo.utils import counters
fast = torch.compile(net, backend="aot_eager")
@torch.compile(backend="eager")
def lose(): return fast(inputs).pow(2).mean() * torch.ones(1).item()
def step():
    optimizer.zero_grad()
    loss = lose()
    loss.backward()
    optimizer.step()
    return loss
for _ in range(20): last = step()
print(last.item(), {key: dict(value) for key, value in counters.items() if key in ("frames", "stats", "graph_break")})
"""
    without = train(program, "", check=False)
    for window in ("2@5", "2@12"):
        done = train(program, window, check=False)
        assert done.returncode == 0, done.stderr
        assert notes(done)[0].startswith("steps ")
        assert done.stdout == without.stdout


def test_optimizers_that_step_inside_the_backward_pass_are_left_alone(train, bare) -> None:
    program = """
optimizers = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in net.parameters()}
def update(parameter):
    optimizers[parameter].step()
    parameter.grad = None
for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(update)
for _ in range(30):
    loss = net(inputs).pow(2).mean()
    loss.backward()
print(loss.item(), torch.autograd._profiler_enabled())
"""
    done = train(program)
    assert done.stdout == bare(program).stdout
    assert notes(done) == ["no window: the program's optimizers step inside the backward pass"]


def test_a_window_of_kernels_needs_a_gpu(train) -> None:
    done = train("for _ in range(300): step()", "kernels")
    assert notes(done) == ["no window: no GPU is used whose kernels this PyTorch records"]
    assert not list(done.run_dir.glob("tools/*"))


def test_a_window_of_kernels_asks_for_nothing_of_the_host_and_for_twenty_steps(train) -> None:
    done = train(
        """
from perfwrap_recorder.gpu import devices, profiler_window, torch_profiler
assert torch_profiler.find(torch) == ""
kinds = torch.autograd.profiler.ProfilerActivity
class Gpu: kind, is_chosen, is_initialized = "cuda", False, staticmethod(lambda: True)
devices.current = Gpu
torch_profiler._supported = lambda: {kinds.CPU, kinds.CUDA}
details = ("shapes", "memory", "stack", "flops")
only, both = torch_profiler.Recording(details, True), torch_profiler.Recording(details)
print(sorted(str(kind) for kind in only._activities), sorted(str(kind) for kind in both._activities))
plan = profiler_window._plan = profiler_window.Plan("kernels")
for step_ns in (1, 2 * 10**7, 10**9):
    plan.times = [step_ns]
    print(profiler_window._count_steps())
devices.current = None
""",
        "",
    )
    assert done.stdout.splitlines() == [
        "['ProfilerActivity.CUDA'] ['ProfilerActivity.CPU', 'ProfilerActivity.CUDA']",
        *("200", "50", "20"),
    ]
