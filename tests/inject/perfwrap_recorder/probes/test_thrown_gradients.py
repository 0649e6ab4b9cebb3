"""What is told of gradients that are cleared before anybody used them, and that telling it changes nothing."""

from __future__ import annotations

import pytest

PAIR = """
class Maker(nn.Linear): pass
class Judge(nn.Linear): pass
maker, judge = Maker(3, 4), Judge(4, 1)
of_maker, of_judge = torch.optim.SGD(maker.parameters(), 0.1), torch.optim.SGD(judge.parameters(), 0.1)
def detached(made): return made.detach()
def attached(made): return made
def train(pass_on, judged=1, steps=20, options={}, before=lambda: None, modules=False):
    for _ in range(steps):
        for _ in range(judged):
            (judge if modules else of_judge).zero_grad(**options)
            made = pass_on(maker(torch.ones(2, 3)))
            (judge(made).sum() - judge(torch.ones(2, 4)).sum()).backward()
            of_judge.step()
        before()
        (maker if modules else of_maker).zero_grad(**options)
        judge(maker(torch.ones(2, 3))).sum().backward()
        of_maker.step()
"""


@pytest.mark.parametrize(
    "how", ["attached", "attached, options={'set_to_none': False}", "attached, modules=True"]
)
def test_what_is_not_detached_is_told(train, how: str) -> None:
    facts = train(PAIR + f"train({how})").journal.facts
    thrown, cleared, steps, calls, fed, model = facts["optimizer/SGD#2/thrown"].split()
    assert (int(thrown), model, fed) == (16, "Maker", "0")
    assert 16 <= int(cleared) <= 18
    assert int(calls) == 2 * int(steps) + 1


def test_several_steps_of_the_judge_count_as_one_clearing(train) -> None:
    facts = train(PAIR + "train(attached, judged=4)").journal.facts
    thrown, _, steps, calls, _, _ = facts["optimizer/SGD#2/thrown"].split()
    assert int(thrown) >= 8
    assert int(calls) == pytest.approx(5 * int(steps), abs=5)


def test_a_judge_through_which_the_gradient_goes_is_marked(train) -> None:
    facts = train(PAIR + "train(detached)").journal.facts
    thrown, _, _, calls, fed, model = facts["optimizer/SGD#1/thrown"].split()
    assert (int(thrown) >= 8, model) == (True, "Judge")
    assert int(fed) == pytest.approx(int(calls) / 3, abs=2)
    assert "optimizer/SGD#2/thrown" not in facts


@pytest.mark.parametrize(
    "program",
    [
        # Gradients of several tasks, one after the other, and a second step at another point: all are used.
        """
for _ in range(30):
    found = []
    for _ in range(3):
        of_maker.zero_grad()
        maker(torch.ones(2, 3)).sum().backward()
        found.append(maker.weight.grad.clone())
    maker.weight.grad = sum(found)
    of_maker.step()
""",
        """
train(attached, before=lambda: maker.weight.data.sub_(maker.weight.grad))
""",
        """
both = torch.optim.SGD([*maker.parameters(), *judge.parameters()], 0.1)
for _ in range(30):
    both.zero_grad()
    judge(maker(torch.ones(2, 3))).sum().backward()
    both.step()
""",
        """
for step in range(40):
    judge(maker(torch.ones(2, 3))).sum().backward()
    if step % 4 == 3:
        of_maker.step(); of_judge.step()
        of_maker.zero_grad(); of_judge.zero_grad()
""",
    ],
    ids=["tasks", "by hand", "one optimizer", "accumulated"],
)
def test_gradients_that_somebody_uses_are_not_told(train, program: str) -> None:
    facts = train(PAIR + program).journal.facts
    assert not [key for key in facts if key.endswith("SGD#1/thrown") and facts[key].split()[5] == "Maker"]
    assert "optimizer/SGD#2/thrown" not in facts


def test_weights_are_as_without_it_and_nobody_is_asked(train) -> None:
    done = train(
        PAIR
        + """
import copy
from torch.overrides import TorchFunctionMode
from perfwrap_recorder.probes import thrown_gradients
asked = []
class Watch(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        asked.append(getattr(function, "__name__", "") + getattr(getattr(function, "__self__", None), "__name__", ""))
        return function(*arguments, **(options or {}))
kept = copy.deepcopy((maker.state_dict(), judge.state_dict()))
with Watch():
    train(attached)
with_it, seen = copy.deepcopy((maker.state_dict(), judge.state_dict())), list(asked)
maker.load_state_dict(kept[0]), judge.load_state_dict(kept[1])
maker.zero_grad(), judge.zero_grad()
thrown_gradients.left = 0
asked.clear()
with Watch():
    train(attached)
assert seen == asked, (len(seen), len(asked))
for before, after in zip(with_it, (maker.state_dict(), judge.state_dict())):
    for name in before:
        assert torch.equal(before[name], after[name])
"""
    )
    assert done.returncode == 0
