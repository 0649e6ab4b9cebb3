"""Changes of the host's work: debugging aids, threads, garbage, checkpoints."""

from __future__ import annotations


def test_debugging_aids_are_left_out(tried) -> None:
    program = """
import warnings
warnings.simplefilter("ignore")
with torch.autograd.detect_anomaly(): print(torch.is_anomaly_enabled())
with torch.autograd.set_detect_anomaly(True): print(torch.is_anomaly_enabled())
torch.autograd.set_detect_anomaly(True)
print(torch.is_anomaly_enabled(), os.environ.get("CUDA_LAUNCH_BLOCKING"), os.environ["TORCH_DISTRIBUTED_DEBUG"])
"""
    variables = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_DISTRIBUTED_DEBUG": "OFF"}
    done = tried(program, "no-debug", more=variables)
    assert done.stdout == "False\nFalse\nFalse None OFF\n"
    assert ("program.py", 4, "detect_anomaly()", "left out") in done.sites("no-debug")
    assert done.said("no-debug", "count") == "4"


def test_the_number_of_threads_is_what_was_requested_in_workers_too(tried) -> None:
    program = """
print(torch.get_num_threads(), os.environ["OMP_NUM_THREADS"])
torch.set_num_threads(1)
print(torch.get_num_threads())
class Threads(Data):
    def __getitem__(self, index): return torch.get_num_threads()
def begin(number): torch.set_num_threads(7)
print(next(iter(torch.utils.data.DataLoader(Threads(), 1, num_workers=1))).item())
print(next(iter(torch.utils.data.DataLoader(Threads(), 1, num_workers=1, worker_init_fn=begin))).item())
"""
    done = tried(program, "threads=3")
    assert done.stdout == "3 3\n3\n1\n3\n"
    assert ("program.py", 3, "set_num_threads(1)", "set_num_threads(3)") in done.sites("threads")


TRAIN = """
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
train(torch.utils.data.DataLoader(Data(), 4), model, optimizer, 20)
"""


def test_garbage_is_frozen_after_a_few_steps(tried) -> None:
    done = tried("import gc\n" + TRAIN + "print(gc.get_freeze_count() > 10000)", "gc-freeze")
    assert done.stdout == "True\n"
    assert done.said("gc-freeze", "count") == "1"
    assert tried("import gc\ngc.disable()\n" + TRAIN, "gc-freeze").said("gc-freeze") == "refused"


SAVE = """
import io, pathlib
buffer = io.BytesIO()
torch.save([1], buffer)
print(torch.load(buffer.__class__(buffer.getvalue())))
print(torch.save([1], "a"), torch.save([1], pathlib.Path("b")), torch.save(obj=[1], f="c"))
with open("d", "wb") as file: torch.save([1], file)
print([os.path.exists(name) and os.path.getsize(name) > 0 for name in "abcd"])
"""


def test_checkpoints_are_left_out_and_buffers_are_not(tried) -> None:
    done = tried(SAVE, "no-checkpoint")
    assert done.stdout == "[1]\nNone None None\n[False, False, False, False]\n"
    assert done.said("no-checkpoint", "count") == "4"
    assert [site[1] for site in done.sites("no-checkpoint")] == [6, 7]
    assert done.sites("no-checkpoint")[0][2:] == ("torch.save", "left out")


def test_without_changes_nothing_of_them_is_loaded(tried) -> None:
    program = """
own = [name for name in sys.modules if name.startswith("perfwrap_recorder.")]
print([name for name in own if ".changes" in name or ".experiments" in name])
"""
    assert tried(program).stdout == "[]\n"
