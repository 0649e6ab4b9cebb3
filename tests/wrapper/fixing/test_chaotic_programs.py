"""Rounding that chaotic programs let grow is no change of the training; a small real change is one. Real trainings."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from perfwrap.fixing import equality
from perfwrap.fixing.equality import StepValues
from perfwrap.fixing.search import CHECK_STEPS, MOST_BOUNDS

INJECT = Path(__file__).parents[3] / "inject"
with pytest.MonkeyPatch.context() as patch:  # the recorder is only importable where it is injected
    patch.syspath_prepend(INJECT)
    step_values = importlib.import_module("perfwrap_recorder.experiments.step_values")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

LINEAR, RELU = torch.nn.Linear, torch.nn.ReLU


class Training:
    """A training of a few steps; ``is_summed`` rounds otherwise, the other arguments change it."""

    def __init__(
        self,
        is_summed: bool = False,
        perturbation: int = 0,
        rate: float = 1.0,
        weight: float = 1.0,
        frozen: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.is_summed, self.rate, self.weight = is_summed, rate, weight
        self.modules = self.make()
        for module in self.modules:
            module[0].weight.requires_grad_(not frozen)
        self.parameters = [each for module in self.modules for each in module.parameters()]
        if perturbation:
            step_values._perturb(torch, self.parameters, perturbation)
        self.optimizers = [self.optimizer(list(module.parameters())) for module in self.modules]

    def make(self) -> list[torch.nn.Sequential]:
        raise NotImplementedError

    def optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=1e-3 * self.rate)

    def step(self) -> list[Tensor]:
        """Make a step, and return its losses."""
        raise NotImplementedError

    def passes(self, optimizer: torch.optim.Optimizer, *losses: Tensor) -> list[Tensor]:
        """Run the backward passes of losses, of which the last is weighted, and step."""
        weighted = [*losses[:-1], losses[-1] * self.weight]
        optimizer.zero_grad()
        if self.is_summed:
            sum(weighted).backward()
        else:
            for loss in weighted:
                loss.backward(retain_graph=True)
        optimizer.step()
        return weighted

    def values(self) -> Iterator[StepValues]:
        for _ in range(CHECK_STEPS):
            losses = [float(loss.detach()) for loss in self.step()]
            checksum, norm, products = step_values._sums(torch, [each.detach() for each in self.parameters])
            yield StepValues(sum(losses), checksum, float(norm), tuple(map(float, products.split())))


class Normalised(Training):
    """With biases whose gradient is only rounding, since a normalisation removes them: Adam makes whole steps of it."""

    def make(self) -> list[torch.nn.Sequential]:
        norm = torch.nn.BatchNorm1d
        return [
            torch.nn.Sequential(
                LINEAR(32, 64), norm(64), RELU(), LINEAR(64, 64), norm(64), RELU(), LINEAR(64, 2)
            )
        ]

    def step(self) -> list[Tensor]:
        batch = torch.randn(32, 32)
        output = self.modules[0](batch)
        loss = torch.nn.functional.cross_entropy(output, (batch[:, 0] > batch[:, 1]).long())
        return self.passes(self.optimizers[0], loss, 0.1 * output.square().mean())


class Descent(Normalised):
    """The same with plain gradient descent."""

    def optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05 * self.rate, momentum=0.9)


class Adversaries(Training):
    """Two models that train against each other."""

    def make(self) -> list[torch.nn.Sequential]:
        return [
            torch.nn.Sequential(LINEAR(100, 128), torch.nn.LeakyReLU(0.2), LINEAR(128, 1)),
            torch.nn.Sequential(LINEAR(16, 128), RELU(), LINEAR(128, 100), torch.nn.Tanh()),
        ]

    def step(self) -> list[Tensor]:
        (judge, maker), (of_judge, of_maker) = self.modules, self.optimizers
        real, made = torch.randn(32, 100).cumsum(1).div(10).tanh(), maker(torch.randn(32, 16))
        entropy = torch.nn.functional.binary_cross_entropy_with_logits
        one, zero = torch.ones(32, 1), torch.zeros(32, 1)
        judged = judge(real)
        losses = judged.square().mean(), entropy(judged, one), entropy(judge(made.detach()), zero)
        return self.passes(of_judge, *losses) + self.passes(of_maker, entropy(judge(made), one))


KINDS = [Normalised, Descent, Adversaries]


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_within_the_bound_and_small_real_changes_are_not(kind: type[Training]) -> None:
    original = list(kind().values())
    bounds = [list(kind(perturbation=number).values()) for number in range(1, MOST_BOUNDS + 1)]
    rounded = list(kind(is_summed=True).values())
    assert not equality.is_identical(original, rounded)
    assert equality.compare(original, rounded, *bounds)[0] is True
    changes = [{"rate": 1.01}, {"rate": 0.999}, {"weight": 1.01}, {"weight": 0.0}, {"frozen": True}]
    for change in changes:
        assert equality.compare(original, list(kind(**change).values()), *bounds)[0] is False, change


def test_rounding_of_a_chaotic_program_is_more_than_rounding_of_another() -> None:
    original, rounded = (list(Normalised(is_summed=is_summed).values()) for is_summed in (False, True))
    assert equality.compare(original, rounded, original)[0] is False


def test_a_perturbation_changes_parameters_in_single_precision_by_a_millionth() -> None:
    tensors = [torch.randn(300, 300), torch.randn(8, 3, 4, 4).to(memory_format=torch.channels_last)]
    half, whole = torch.randn(9).half(), torch.arange(3)
    before = [each.clone() for each in (*tensors, half, whole)]
    drawn = torch.get_rng_state()
    step_values._perturb(torch, [*tensors, half, whole], 1)
    assert torch.equal(torch.get_rng_state(), drawn)
    for old, new in zip(before, tensors, strict=False):
        apart = (new / old - 1).abs()
        assert apart.min() > 0.8e-6 and apart.max() < 1.2e-6
        assert 0.2 < (new > old).double().mean() < 0.8
    assert torch.equal(half, before[2]) and torch.equal(whole, before[3])
