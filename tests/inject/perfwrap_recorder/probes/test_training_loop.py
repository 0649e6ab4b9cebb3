"""An ordinary training loop is recorded phase by phase, each with the line that the user wrote."""

from __future__ import annotations

import ast

import pytest

LOOP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    def forward(self, x):
        return self.layers(x)

net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.1, foreach=False)
criterion = nn.CrossEntropyLoss()
data = torch.utils.data.TensorDataset(torch.randn(20, 4), torch.randint(0, 2, (20,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)

def epoch():
    for x, y in loader:  # LOADER
        optimizer.zero_grad()  # ZERO
        loss = criterion(net(x), y)  # FORWARD
        loss.backward()  # BACKWARD
        optimizer.step()  # STEP
        total = loss.item()  # ITEM

for _ in range(2):
    epoch()
x = torch.randn(3, 4)
net.eval()
with torch.inference_mode():
    net(x)
with torch.no_grad():
    net(x)
torch.save(net.state_dict(), sys.argv[1] + "/model.pt")  # SAVE
torch.load(sys.argv[1] + "/model.pt")  # LOAD
net.zero_grad()
import gc
gc.collect()  # COLLECT
"""


@pytest.fixture(scope="module")
def done(train):
    """The loop, recorded."""
    return train(LOOP)


@pytest.fixture(scope="module")
def lines(done) -> dict[str, int]:
    """Line numbers by the marks in the program."""
    program = (done.run_dir / "program.py").read_text().splitlines()
    return {text.rpartition("# ")[2]: number for number, text in enumerate(program, 1) if "  # " in text}


@pytest.mark.parametrize(
    "kind, count, mark, label",
    [
        ("DATA", 6, "LOADER", "loader/1"),
        ("DATA_END", 2, "LOADER", "loader/1"),
        ("LOADER_START", 2, "LOADER", "loader/1"),
        ("BACKWARD", 6, "BACKWARD", "backward"),
        ("OPTIMIZER", 6, "STEP", "Adam#1"),
        ("SYNC", 6, "ITEM", "Tensor.item"),
        ("SAVE", 1, "SAVE", "torch.save"),
        ("LOAD", 1, "LOAD", "torch.load"),
    ],
)
def test_each_phase_is_recorded_with_its_line(
    done, lines, kind: str, count: int, mark: str, label: str
) -> None:
    found = done.journal.of(kind)
    assert len(found) == count
    assert {span.label for span in found} == {label}
    assert {span.line[:2] for span in found} == {("program.py", lines[mark])}
    assert all(span.duration > 0 for span in found)


def test_each_batch_has_its_size(done) -> None:
    assert [span.value for span in done.journal.of("DATA")] == [8, 8, 4] * 2


def test_only_outermost_modules_are_recorded_with_what_they_ran_under(done, lines) -> None:
    found = done.journal.of("FORWARD")
    assert [span.label for span in found] == ["Net", "CrossEntropyLoss"] * 6 + ["Net"] * 2
    assert [span.value for span in found[:2]] == [3, 3]
    assert [span.value for span in found[-2:]] == [4, 0]
    assert {span.line for span in found[:12]} == {("program.py", lines["FORWARD"], "epoch")}


def test_gradients_of_optimizers_and_of_modules_are_distinguished(done, lines) -> None:
    found = done.journal.of("ZERO_GRAD")
    assert [span.label for span in found] == ["Optimizer.zero_grad"] * 6 + ["Module.zero_grad"]
    assert found[0].line == ("program.py", lines["ZERO"], "epoch")


def test_what_an_optimizer_reads_for_itself_is_not_the_users(done) -> None:
    # Adam without foreach calls item() for each parameter, samplers and loaders do so for each epoch.
    assert len(done.journal.of("SYNC")) == 6


def test_a_full_collection_bears_its_line(done, lines) -> None:
    last = [span for span in done.journal.of("GC") if span.value == 2][-1]
    assert last.line[:2] == ("program.py", lines["COLLECT"])


def test_a_checkpoint_has_its_size(done) -> None:
    size = (done.run_dir / "model.pt").stat().st_size
    assert [span.value for span in done.journal.of("SAVE", "LOAD")] == [size, size]


def test_phases_do_not_overlap_and_the_loop_is_in_order(done) -> None:
    kinds = ("DATA", "ZERO_GRAD", "FORWARD", "BACKWARD", "OPTIMIZER", "SYNC")
    found = done.journal.of(*kinds)[:7]
    assert [span.kind for span in found] == [*kinds[:3], "FORWARD", *kinds[3:]]
    assert all(one.start + one.duration <= two.start for one, two in zip(found, found[1:], strict=False))


def test_the_facts_say_what_was_trained_how(done, lines) -> None:
    facts = done.journal.facts
    import torch

    assert facts["torch"] == torch.__version__
    assert facts["threads"] == "1"
    assert facts["model/Net/parameters"] == str(4 * 8 + 8 + 8 * 2 + 2)
    assert (facts["model/Net/class"], facts["model/Net/device"]) == ("__main__.Net", "cpu")
    assert facts["model/Net/dtype"] == "torch.float32"
    assert "model/CrossEntropyLoss/class" not in facts
    assert facts["optimizer/Adam#1/class"] == "torch.optim.adam.Adam"
    assert (facts["optimizer/Adam#1/foreach"], facts["optimizer/Adam#1/parameters"]) == ("False", "4")
    settings = {key[9:]: value for key, value in facts.items() if key.startswith("loader/1/")}
    created = settings.pop("created").split("\x1f")
    assert (created[0], created[2]) == (str(done.run_dir / "program.py"), "<module>")
    assert settings == {
        "num_workers": "0",
        "batch_size": "8",
        "pin_memory": "False",
        "drop_last": "False",
        "persistent_workers": "False",
        "dataset": "torch.utils.data.dataset.TensorDataset",
        "sampler": "torch.utils.data.sampler.SequentialSampler",
        "dataset_len": "20",
        "collate": "torch.utils.data._utils.collate.default_collate",
    }


SILENT = {
    "cell_numbers": "there is no notebook",
    "compiler": "it records nothing by itself",
    "stored_functions": "it records nothing",
    "process_ends": "it records nothing",
    "window": "it was not requested",
    "sampler": "it was not requested",
    "gpu_time": "it needs a GPU",
    "memory": "it needs a build of PyTorch with CUDA",
}
"""Probes that do not have to say in this program that they watch, and why."""


def test_every_probe_says_that_it_watches(train) -> None:
    done = train(LOOP + "\nprint([name.rpartition('.')[2] for name in probes.PROBES])")
    probes = set(ast.literal_eval(done.stdout))
    names = {found.name.removeprefix("probe/") for found in done.journal.of("COVERAGE")}
    assert {"forward", "optimizer"} < probes > set(SILENT)
    assert probes - set(SILENT) <= names <= probes


def test_nothing_is_printed_and_the_results_are_those_of_a_bare_run(train, run_bare) -> None:
    program = (
        "torch.manual_seed(0)\n" + LOOP + "\nprint([p.sum().item() for p in net.parameters()], net(x))\n"
    )
    recorded = train(program)
    bare = "import sys, torch\nfrom torch import nn\ntorch.set_num_threads(1)\n" + program
    assert recorded.stdout == run_bare(bare, str(recorded.run_dir))


def test_a_probe_that_breaks_while_the_program_runs_is_listed_and_harms_nothing(train) -> None:
    broken = (
        "loop.backward",
        "data_loading.data_loader",
        "loop.forward",
        "loop.optimizer",
        "loop.serialization",
        "loop.zero_grad",
    )
    done = train(
        f"""
def fail(*_): raise ZeroDivisionError("broken")
for name in {broken!r}:
    import_module("perfwrap_recorder.probes." + name).label = fail
import_module("perfwrap_recorder.probes.host_sync.sync").source_lines.label = fail
"""
        + LOOP
        + """
failed, loss = sorted(guard.failed), criterion(net(x[:, :4]), torch.zeros(3, dtype=torch.long)).item()
guard.failed.clear()
print(failed, loss)
"""
    )
    names, _, loss = done.stdout.rpartition("] ")
    assert all(f"'{name.rpartition('.')[2]}'" in names for name in (*broken, "sync"))
    assert float(loss) > 0
    notes = {
        found.name: done.journal.texts[found.value] for found in done.journal.of("COVERAGE") if found.value
    }
    assert notes["probe/forward"] == "failed: ZeroDivisionError: broken"


def test_what_c_calls_without_a_caller_in_python_works_and_is_recorded(train) -> None:
    done = train(
        """
import _thread, atexit, gc
model, value = nn.Linear(2, 1), torch.ones(1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for call in (value.item, value.__float__, value.numpy, value.clone().copy_, optimizer.zero_grad, scheduler.step):
    atexit.register(call, *([value] if call.__name__ == "copy_" else []))
atexit.register(optimizer.step)
atexit.register(model, torch.ones(2))
atexit.register(gc.collect)
"""
    )
    assert {"SYNC", "ZERO_GRAD", "OPTIMIZER", "FORWARD"} <= {found.kind for found in done.journal.records}
    assert "failed" not in " ".join(done.journal.texts.values())


def test_each_line_that_keeps_its_graph_for_another_pass_says_so(train) -> None:
    done = train(
        """
import warnings
warnings.simplefilter("ignore")  # create_graph=True warns
net = nn.Linear(2, 1)
def loss(): return net(torch.ones(1, 2)).square().sum()
for _ in range(3):
    both = loss()
    both.backward(retain_graph=True)  # KEEPS
    both.backward()
    both = loss()
    both.backward(create_graph=True)
    both = loss()
    both.backward(None, True, True)
    both = loss()
    both.backward(retain_graph=True, inputs=[net.weight])
    torch.autograd.backward(loss(), retain_graph=True)  # KEEPS TOO
print(net.weight.grad.abs().sum().item() > 0)
"""
    )
    facts = done.journal.facts
    program = (done.run_dir / "program.py").read_text().splitlines()
    marked = next(number for number, text in enumerate(program, 1) if text.endswith("# KEEPS"))
    assert facts["backward/1/line"].split("\x1f")[1] == str(marked)
    assert facts["backward/1/retain_graph"] == "True"
    assert program[int(facts["backward/2/line"].split("\x1f")[1]) - 1].endswith("# KEEPS TOO")
    assert "backward/3/line" not in facts
    assert done.stdout.splitlines() == ["True"]
