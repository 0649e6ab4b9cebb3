"""What is recorded of gradients that are cleared before they are used, without effect on the program."""

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
def test_what_is_not_detached_is_reported(train, how: str) -> None:
    facts = train(PAIR + f"train({how})").journal.facts
    thrown, cleared, steps, wasted, used, calls, model = facts["optimizer/SGD#2/thrown"].split()
    assert (int(thrown), int(wasted), model) == (16, 16, "Maker")
    assert 16 <= int(cleared) <= 18
    assert int(used) == int(steps) - 1
    assert int(calls) == 2 * int(steps) + 1


@pytest.mark.parametrize("rests", [False, True])
def test_no_gradient_is_asked_for_once_another_thread_trains(train, rests: bool) -> None:
    # A backward pass writes gradients without Python's lock: reading one at that time crashed the process.
    done = train(
        PAIR
        + f"""
import threading
from perfwrap_recorder.journal import paused_detail
from perfwrap_recorder.program import tensor_access
def other():
    if {rests}: paused_detail.paused.update(paused_detail.PAUSABLE)
    nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()
    if {rests}: paused_detail.paused.clear()
assert not tensor_access.are_gradients_free()
train(attached, steps=1)
assert tensor_access.are_gradients_free()
thread = threading.Thread(target=other)
thread.start(); thread.join()
assert not tensor_access.are_gradients_free()
train(attached)
"""
    )
    assert "optimizer/SGD#2/thrown" not in done.journal.facts


def test_no_gradient_is_asked_for_while_there_is_a_thread_that_python_does_not_list(
    train,
) -> None:
    train(
        PAIR
        + """
import _thread, threading
from perfwrap_recorder.program import tensor_access
begun, may_end, has_ended = [_thread.allocate_lock() for _ in range(3)]
def other():
    begun.release(); may_end.acquire(); has_ended.release()
for each in (begun, may_end, has_ended):
    each.acquire()
train(attached, steps=1)
assert tensor_access.are_gradients_free()
_thread.start_new_thread(other, ())
begun.acquire()
assert threading.active_count() == 1 and not tensor_access.are_gradients_free()
may_end.release(); has_ended.acquire()
while _thread._count(): pass
assert tensor_access.are_gradients_free()
"""
    )


def test_each_step_of_the_judge_is_a_backward_pass_for_nothing(train) -> None:
    facts = train(PAIR + "train(attached, judged=4)").journal.facts
    thrown, _, steps, wasted, used, calls, _ = facts["optimizer/SGD#2/thrown"].split()
    assert int(thrown) >= 8
    assert int(wasted) == 4 * int(thrown)
    assert int(used) == pytest.approx(int(thrown), abs=1)
    assert int(calls) == pytest.approx(5 * int(steps), abs=5)


@pytest.mark.parametrize(
    "program",
    [
        # Gradients of several tasks, one after the other, and a second step at another point: all are used.
        """
for _ in range(30):
    of_judge.zero_grad()
    judge(torch.ones(2, 4)).sum().backward()
    of_judge.step()
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
        # What the model makes must be gone through: its input requires gradients, or may do so.
        "train(detached)",
        """
class Box: pass
class Opener(Maker):
    def forward(self, box): return super().forward(box.x)
box, maker = Box(), Opener(3, 4)
box.x, of_maker = torch.ones(2, 3), torch.optim.SGD(maker.parameters(), 0.1)
whole = maker
maker = lambda x: whole(box)
train(attached)
""",
        # Two optimizers of one model, in turn.
        """
whole = nn.Sequential(maker, judge)
for step in range(60):
    of_maker.zero_grad() if step % 2 else of_judge.zero_grad()
    whole(torch.ones(2, 3)).sum().backward()
    of_maker.step() if step % 2 else of_judge.step()
""",
        # Another optimizer has what is no module's parameter: the gradient may have to go through the model to it.
        """
alpha = torch.ones(3, requires_grad=True)
of_alpha = torch.optim.Adam([alpha])
maker.forward = lambda x: nn.Linear.forward(maker, x * alpha)
for step in range(30):
    of_alpha.zero_grad()
    maker(torch.ones(2, 3)).sum().backward()
    of_alpha.step()
    of_maker.zero_grad()
    maker(torch.ones(2, 3)).sum().backward()
    of_maker.step()
""",
        # The recording does not distinguish two models of one class.
        "judge = Maker(4, 1)\nof_judge = torch.optim.SGD(judge.parameters(), 0.1)\ntrain(attached)",
        # A part of the model was called with something that requires gradients.
        """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 1)
    def forward(self, x):
        return self.second(self.first(x))
both, other = Both(), nn.Linear(3, 3)
of_both, of_other = torch.optim.SGD(both.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
for step in range(30):
    of_both.zero_grad()
    both(torch.ones(2, 3)).sum().backward()
    of_both.step()
    of_other.zero_grad()
    both.first(other(torch.ones(2, 3))).sum().backward()
    of_other.step()
""",
    ],
    ids=[
        "tasks",
        "by hand",
        "one optimizer",
        "accumulated",
        "gone through",
        "unknown input",
        "in turn",
        "no module's",
        "one class",
        "a part",
    ],
)
def test_gradients_that_are_used_or_had_to_be_are_not_reported(train, program: str) -> None:
    facts = train(PAIR + program).journal.facts
    assert not [key for key in facts if key.endswith("/thrown")]


def test_weights_are_as_without_it_and_nothing_is_observed(train) -> None:
    done = train(
        PAIR
        + """
import copy
from torch.overrides import TorchFunctionMode
from perfwrap_recorder.probes.loop import discarded_gradients
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
discarded_gradients.left = 0
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


def test_parameters_can_be_swapped(train) -> None:
    done = train(
        PAIR
        + """
torch.__future__.set_swap_module_params_on_conversion(True)
big = nn.Embedding(5000, 40)
of_big = torch.optim.SGD(big.parameters(), 0.1)
big(torch.arange(9)).sum().backward()
of_big.step()
train(attached)
for module in (maker, judge, big):
    for of in (of_maker, of_judge, of_big): of.zero_grad()
    module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()})
    module.half()
""",
        check=False,
    )
    if "set_swap_module_params_on_conversion" in done.stderr:
        pytest.skip("this PyTorch does not swap")
    assert done.returncode == 0, done.stderr
