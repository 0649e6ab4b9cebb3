"""What a run records of losses and parameters, and what is read of it: real programs, without timing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap.experiments.reading import read_timeline
from perfwrap.fixing import equality
from perfwrap.fixing.equality import StepValues
from perfwrap.run_folder import RunFolder
from perfwrap.timeline.model import Timeline

pytestmark = pytest.mark.torch

NORMALISED = """import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    batch = torch.randn(16, 8)
    optimizer.zero_grad()
    for call in range({calls}):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
"""
AVERAGED = """import copy
import torch
model = torch.nn.Linear(8, 1)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    for mean, weight in zip(average.parameters(), model.parameters()):
        mean.data.mul_({decay}).add_(weight.data, alpha=1 - {decay})
"""
TWO_LOSSES = """import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    optimizer.zero_grad()
    first, second = model(torch.randn(16, 8)).square().mean(0)
    {passes}
    optimizer.step()
"""
WITHOUT_LOSS = """import torch
weight = torch.randn(8, 1, requires_grad=True)
for step in range(40):
    output = (torch.randn(16, 8) @ weight).square()
    output.backward(torch.ones_like(output) / 16)
    with torch.no_grad():
        weight -= 0.01 * weight.grad
    weight.grad = None
"""
WITH_ITEMS = """import random
import torch
from torch.utils.data import DataLoader, Dataset

class Items(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return torch.full((8,), index / 400){noise}

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Items(), batch_size=4, shuffle=True):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""
WITH_HELPER = """import subprocess, sys
try:
    exec(open("main.py").read())
finally:
    subprocess.run([sys.executable, "helper.py"])
"""


EPOCHS = """import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(24, 8))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=1{more})
    for epoch in range(8):
        for (batch,) in loader:
            optimizer.zero_grad()
            (model(batch) + torch.randn(4, 1)).square().mean().backward()
            optimizer.step()
"""


def checked(folder: Path, name: str, text: str, seed: int = 0, perturbation: int = 0) -> Timeline | None:
    """Run a program for its first 20 steps, and return the recording of losses and parameters."""
    pytest.importorskip("torch")
    (folder / f"{name}.py").write_text(text)
    options = ["--trial-steps", "20", "--trial-warm-up", "0", "--trial-values", str(seed), "--no-report"]
    options += ["--trial-perturbation", str(perturbation)]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "perfwrap",
            "run",
            *options,
            "--out",
            name,
            "--",
            sys.executable,
            f"{name}.py",
        ],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
    )
    return read_timeline(RunFolder(folder / name))


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> list[StepValues]:
    """A program with running statistics."""
    return equality.read(checked(tmp_path_factory.mktemp("once"), "once", NORMALISED.format(calls=1)))


@pytest.fixture(scope="module")
def random_items(tmp_path_factory: pytest.TempPathFactory) -> Timeline | None:
    """A program whose items have random numbers of PyTorch."""
    text = WITH_ITEMS.format(noise=" + torch.rand(8)")
    return checked(tmp_path_factory.mktemp("items"), "items", text)


def test_running_statistics_of_batch_normalisation_are_compared(
    once: list[StepValues], tmp_path: Path
) -> None:
    twice = equality.read(checked(tmp_path, "twice", NORMALISED.format(calls=2)))
    assert len(once) >= 20
    assert [each.loss for each in once] == [each.loss for each in twice], "the statistics train nothing"
    assert not equality.is_identical(once, twice)
    assert equality.compare(once, twice, once)[0] is False


def test_a_sum_of_losses_is_compared_with_a_pass_for_each(tmp_path: Path) -> None:
    each = "first.backward(retain_graph=True); second.backward()"
    apart = equality.read(checked(tmp_path, "apart", TWO_LOSSES.format(passes=each)))
    together = equality.read(
        checked(tmp_path, "together", TWO_LOSSES.format(passes="(first + second).backward()"))
    )
    assert len(apart) >= 20
    assert equality.compare(apart, together)[0] is True


def test_averaged_weights_are_compared(tmp_path: Path) -> None:
    slow = equality.read(checked(tmp_path, "slow", AVERAGED.format(decay=0.9)))
    fast = equality.read(checked(tmp_path, "fast", AVERAGED.format(decay=0.8)))
    assert len(slow) >= 20
    assert [each.loss for each in slow] == [each.loss for each in fast]
    assert equality.compare(slow, fast, slow)[0] is False


def test_a_program_without_loss_and_optimizer_has_nothing_to_compare(tmp_path: Path) -> None:
    assert equality.read(checked(tmp_path, "manual", WITHOUT_LOSS)) == []


def test_random_items_are_noticed(random_items: Timeline | None, tmp_path: Path) -> None:
    assert len(equality.read(random_items)) >= 20
    assert equality.items_of(random_items) == "random"
    with_python = checked(tmp_path, "items", WITH_ITEMS.format(noise=" * random.random()"))
    assert equality.items_of(with_python) == "random"


def test_another_seed_changes_the_items_of_a_program_that_seeds_itself_and_not_its_start(
    tmp_path: Path,
) -> None:
    text = WITH_ITEMS.format(noise=" + torch.rand(8)")
    text = text.replace("model =", "torch.manual_seed(7); random.seed(7)\nmodel =")
    first = equality.read(checked(tmp_path, "first", text))
    other = equality.read(checked(tmp_path, "other", text, seed=1))
    assert len(other) >= 20
    assert 0 < max(equality.deviations(first, other)[0]) < 0.5
    assert not equality.is_identical(first, other)


def test_an_iterable_data_set_has_no_random_items(tmp_path: Path) -> None:
    text = WITH_ITEMS.format(noise=" + torch.rand(8)").replace("Dataset", "IterableDataset")
    text = text.replace(
        "def __getitem__(self, index):\n        return",
        "def __iter__(self):\n        index = 1\n        while True: yield",
    )
    timeline = checked(tmp_path, "items", text.replace(", shuffle=True", ""))
    assert len(equality.read(timeline)) >= 20
    assert equality.items_of(timeline) == "fixed"


def test_the_values_are_those_of_the_main_trainer(once: list[StepValues], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(NORMALISED.format(calls=1))
    (tmp_path / "helper.py").write_text(NORMALISED.format(calls=2).replace("range(40)", "range(9)"))
    beside = equality.read(checked(tmp_path, "both", WITH_HELPER))
    assert equality.is_identical(once, beside)


def test_a_perturbed_run_differs_by_rounding_and_draws_the_same_numbers(
    random_items: Timeline | None, tmp_path: Path
) -> None:
    text = WITH_ITEMS.format(noise=" + torch.rand(8)")
    original = equality.read(random_items)
    perturbed = equality.read(checked(tmp_path, "perturbed", text, perturbation=1))
    assert len(perturbed) >= 20
    assert all(0 < max(step) < 1e-5 for step in equality.deviations(original, perturbed))


def test_persistent_workers_leave_the_program_its_other_random_numbers(tmp_path: Path) -> None:
    again = checked(tmp_path, "again", EPOCHS.format(more=""))
    kept = checked(tmp_path, "kept", EPOCHS.format(more=", persistent_workers=True"))
    assert (equality.draws_of(again), equality.draws_of(kept)) == (0, 3)
    assert equality.is_identical(equality.read(again), equality.read(kept))
