"""Settings that decide speed are facts, said again when they change, with the line of those that have a setter."""

from __future__ import annotations

import pytest

USE = "nn.Linear(2, 2)(torch.ones(1, 2))\n"
LOOK = "from perfwrap_recorder.probes.run import torch_facts\ntorch_facts.look()\n"


def line_of(journal, key: str) -> tuple[str, str]:
    """Return file name and function of a fact that names a line."""
    file, _, function = journal.facts[key].split("\x1f")
    return file.rpartition("/")[2], function


def test_nothing_is_asked_before_the_program_uses_a_model(train) -> None:
    facts = train("").journal.facts
    assert "torch" in facts
    assert not {"threads", "deterministic", "float32_matmul_precision"} & set(facts)


def test_the_defaults_of_torch_are_said(train) -> None:
    facts = train(USE).journal.facts
    expected = {
        "threads": "1",
        "float32_matmul_precision": "highest",
        "tf32_matmul": "False",
        "tf32_cudnn": "True",
        "default_dtype": "torch.float32",
        "deterministic": "False",
        "cudnn_benchmark": "False",
        "cudnn_deterministic": "False",
        "anomaly_detection": "False",
        "user_profiler": "False",
        "model/Linear/autocast": "off",
    }
    assert {key: facts.get(key) for key in expected} == expected


CHANGES = (
    ("torch.set_float32_matmul_precision('high')", "float32_matmul_precision", "high", True),
    ("None", "tf32_matmul", "True", False),
    ("torch.set_num_threads(2)", "threads", "2", False),
    ("torch.set_num_interop_threads(3)", "interop_threads", "3", False),
    ("torch.autograd.set_detect_anomaly(True)", "anomaly_detection", "True", True),
    ("running.append(profiler.start())", "user_profiler", "False", True),  # it is stopped in the end
    ("torch.use_deterministic_algorithms(True, warn_only=True)", "deterministic", "True", False),
    ("None", "deterministic_warn_only", "True", False),
    ("setattr(torch.backends.cudnn, 'benchmark', True)", "cudnn_benchmark", "True", False),
    ("setattr(torch.backends.cudnn, 'deterministic', True)", "cudnn_deterministic", "True", False),
    ("torch.set_default_dtype(torch.float64)", "default_dtype", "torch.float64", False),
    ("os.environ.update(CUDA_LAUNCH_BLOCKING='1')", "env/CUDA_LAUNCH_BLOCKING", "1", False),
)


@pytest.fixture(scope="module")
def changed(train):
    """The journal of a program that changes all of them, each in a function of its own."""
    program = (
        "running, profiler = [], torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])\n"
    )
    for number, (change, *_) in enumerate(CHANGES):
        program += f"def change_{number}():\n    {change}\nchange_{number}()\n"
    done = train(program + LOOK + "profiler.stop()\n", check=False)
    assert done.returncode == 0, done.stderr
    return done.journal


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_change_is_said_with_the_line_of_its_setter(changed, number: int) -> None:
    _, key, value, has_line = CHANGES[number]
    assert changed.facts[key] == value
    if has_line:
        assert line_of(changed, key + "/line") == ("program.py", f"change_{number}")


def test_a_setting_is_said_again_only_when_it_has_changed(train) -> None:
    records = train(
        LOOK + "torch_facts.look()\ntorch.set_num_threads(2)\ntorch_facts.look()\ntorch_facts.look()\n"
    ).journal
    said = [records.texts[found.value] for found in records.of("FACT") if found.name == "threads"]
    assert said == ["1", "2"]


def test_precision_set_backend_by_backend_breaks_no_question(train) -> None:
    pytest.importorskip("torch", "2.9", reason="older versions have no precision by backend")
    done = train(
        "if hasattr(torch.backends.cuda.matmul, 'fp32_precision'):\n"
        "    torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "    print('new')\n" + LOOK
    )
    if done.stdout:
        facts = done.journal.facts
        assert (facts["float32_matmul_precision"], facts["tf32_matmul"]) == ("by backend", "True")


def test_the_autocast_that_a_model_is_called_under_is_said(train) -> None:
    pytest.importorskip("torch", "2.1", reason="autocast to float16 on a CPU needs torch 2.1")
    facts = train("""
for kind, dtype in ((nn.Linear, torch.bfloat16), (nn.Bilinear, torch.float16)):
    net = kind(2, 2) if kind is nn.Linear else kind(2, 2, 2)
    inputs = [torch.ones(1, 2)] * (1 if kind is nn.Linear else 2)
    with torch.autocast("cpu", dtype=dtype): net(*inputs)
    net.eval()
    with torch.no_grad(): net(*inputs)
""").journal.facts
    assert facts["model/Linear/autocast"] == "cpu torch.bfloat16"
    assert facts["model/Bilinear/autocast"] == "cpu torch.float16"
    assert facts["model/Linear/autocast_in_evaluation"] == "off"


def test_types_devices_and_memory_format_of_a_model_are_said(train) -> None:
    facts = train("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3), nn.Linear(4, 2).bfloat16()
    def forward(self, x): return self.head(self.conv(x).mean((2, 3)).bfloat16())
Net().to(memory_format=torch.channels_last)(torch.ones(1, 2, 8, 8))
""").journal.facts
    assert facts["model/Net/dtypes"] == "torch.float32 76, torch.bfloat16 10"
    assert facts["model/Net/devices"] == "cpu 86"
    assert facts["model/Net/channels_last"] == "1 of 1"


def test_warnings_of_the_setters_name_the_users_line(train) -> None:
    program = """
import warnings, os
def change():
    return torch.autograd.detect_anomaly()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    change()
    torch.autograd.set_detect_anomaly(False)
    with torch.profiler.profile(): pass
print([(os.path.basename(w.filename), str(w.message)[:20]) for w in caught if "nomaly" in str(w.message)])
"""
    done = train(program, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[('program.py', 'Anomaly Detection ha')]\n"


def test_a_bare_program_prints_the_same(train, run_bare) -> None:
    program = "\ntorch.set_float32_matmul_precision('high')\nprint(torch.set_num_threads(2), torch.get_num_threads())\n"
    program += "try: torch.set_num_threads('x')\nexcept Exception as error: print(error, error.__context__)\n"
    bare = run_bare("import torch\n" + program)
    assert train(program + LOOK).stdout == bare


def test_a_profiler_counts_as_on_only_while_it_is(train) -> None:
    done = train(
        """
from torch.profiler import profile, schedule
from perfwrap_recorder.journal import facts
model = nn.Linear(2, 1)
model(torch.ones(1, 2))
said = [facts._written["user_profiler"]]
with profile(schedule=schedule(wait=1, warmup=1, active=1, repeat=1)) as profiler:
    for _ in range(6):
        said.append(facts._written["user_profiler"])
        profiler.step()
with profile():
    said.append(facts._written["user_profiler"])
print(said[0], said[1], said[-2], said[-1], facts._written["user_profiler"])
""",
        check=False,  # the profiler writes to standard error
    )
    assert done.stdout.split() == ["False", "False", "False", "True", "False"]
