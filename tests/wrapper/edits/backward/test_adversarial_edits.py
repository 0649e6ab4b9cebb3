"""The edits of a generator's and a discriminator's steps, on one loop in its usual orders."""

from __future__ import annotations

from collections.abc import Callable

import pytest

LOOP = """
import torch

def train(netG, netD, optimizerG, optimizerD, loader):
    for real in loader:
        netD.zero_grad()
        loss_real = f(netD(real))
        loss_real.backward()
        fake = netG(torch.ones(4))
        errD = f(netD(fake))
        errD.backward(retain_graph=True)
        optimizerD.step()
        netG.zero_grad()
        output = netD(fake)
        errG = f(output)
        errG.backward()
        optimizerG.step()
"""
DISCRIMINATOR = LOOP.replace("f(netD(fake))", "f(netD(fake))  # here")
GENERATOR = LOOP.replace("output = netD(fake)", "output = netD(fake)  # here")


def test_fakes_are_detached(apply: Callable[..., str]) -> None:
    assert apply("detached_fakes", DISCRIMINATOR) == (
        "-        errD = f(netD(fake))  # here\n+        errD = f(netD(fake.detach()))  # here"
    )


def test_fakes_are_also_found_from_the_line_that_makes_them(apply: Callable[..., str]) -> None:
    program = LOOP.replace("fake = netG(torch.ones(4))", "fake = netG(torch.ones(4))  # here")
    assert "+        errD = f(netD(fake.detach()))" in apply("detached_fakes", program)


def test_the_line_may_be_that_of_the_backward_pass(apply: Callable[..., str]) -> None:
    of_judge = LOOP.replace("retain_graph=True)", "retain_graph=True)  # here")
    assert "+        errD = f(netD(fake.detach()))" in apply("detached_fakes", of_judge)
    of_maker = LOOP.replace("errG.backward()", "errG.backward()  # here")
    assert "+        netD.requires_grad_(False)" in apply("frozen_discriminator", of_maker)


def test_an_optimizer_is_of_the_model_whose_parameters_it_has(
    apply: Callable[..., str], refuse: Callable[..., str]
) -> None:
    program = DISCRIMINATOR.replace("optimizerD", "first").replace("optimizerG", "second")
    made = "    first = torch.optim.SGD(netD.parameters(), 1)\n    second = torch.optim.SGD(netG.parameters(), 1)\n"
    named = program.replace("    for real", f"{made}    for real")
    assert "+        errD = f(netD(fake.detach()))  # here" in apply("detached_fakes", named)
    assert "not of the optimizer that was expected" in refuse("detached_fakes", program)
    swapped = named.replace("SGD(netD", "SGD(netX")
    assert "not of the optimizer that was expected" in refuse("detached_fakes", swapped)


def test_the_discriminator_is_frozen_for_the_generator(apply: Callable[..., str]) -> None:
    assert apply("frozen_discriminator", GENERATOR) == (
        "+        netD.requires_grad_(False)\n+        netD.requires_grad_(True)"
    )


METHODS = """
class Game:
    def play_critic(self, real):
        self.critic_optimizer.zero_grad()
        loss = f(self.critic(real))
        loss.backward()
        self.critic_optimizer.step()

    def play_generator(self):
        fake = self.generator(x)  # freeze: self.critic.requires_grad_(False)
        loss = -self.critic(fake).mean()  # here
        self.generator_optimizer.zero_grad()
        loss.backward()
        self.generator_optimizer.step()
"""


def test_each_step_may_have_a_function_of_its_own(
    apply: Callable[..., str], refuse: Callable[..., str]
) -> None:
    assert apply("frozen_discriminator", METHODS) == (
        "+        self.critic.requires_grad_(False)\n+        self.critic.requires_grad_(True)"
    )
    late = METHODS.replace("        self.critic_optimizer.zero_grad()\n", "")
    assert "not cleared" in refuse("frozen_discriminator", late)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("        netG.zero_grad()\n", "", "not cleared before the next one"),
        ("optimizerD.step()", "optimizerG.step()", "not of the optimizer"),
        ("fake = netG(torch.ones(4))", "fake = torch.ones(4)", "no call of a discriminator with samples"),
        ("errD.backward(retain_graph=True)", "errD.sum()", "not of the optimizer"),
        ("netD", "model", "no call of a discriminator"),
        ("optimizerD.step()", "torch.autograd.grad(errD, fake)", "takes a gradient with respect to fake"),
    ],
)
def test_fakes_that_may_train_the_generator_stay(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in DISCRIMINATOR
    assert reason in refuse("detached_fakes", DISCRIMINATOR.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("        netD.zero_grad()\n", "", "not cleared before the next one"),
        ("optimizerG.step()", "optimizerD.step()", "not of the optimizer"),
        ("import torch", "import torch\np.requires_grad = False", "sets requires_grad itself"),
        ("errG.backward()", "print(errG)", "No backward pass follows"),
    ],
)
def test_a_discriminator_whose_gradients_may_be_used_stays(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in GENERATOR
    assert reason in refuse("frozen_discriminator", GENERATOR.replace(old, new))


@pytest.mark.parametrize(
    ("name", "program"), [("detached_fakes", DISCRIMINATOR), ("frozen_discriminator", GENERATOR)]
)
def test_the_weights_are_the_same_to_the_last_bit(name: str, program: str) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    found = edit(name, program, Target(program[: program.index("# here")].count("\n") + 1))
    assert isinstance(found, Edited)
    weights = []
    for text in (program, found.text):
        torch.manual_seed(0)
        models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)) for _ in range(2)]
        names: dict[str, object] = {"f": lambda x: x.pow(2).mean()}
        exec(text, names)
        optimizers = [torch.optim.Adam(model.parameters()) for model in models]
        names["train"](*models, *optimizers, [torch.randn(4) for _ in range(5)])
        weights.append([weight for model in models for weight in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
