"""What is recorded of unused gradients, without effect on the program."""

from __future__ import annotations

import pytest

NET = """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
def train(optimizer, steps=40, model=net, after=lambda: None):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        after()
"""


OTHER = """
class Teacher(nn.Sequential): pass
teacher = Teacher(nn.Linear(4, 2))
def distil(optimizer, watch=torch.enable_grad, steps=40):
    for _ in range(steps):
        optimizer.zero_grad()
        with watch(): aim = teacher(torch.ones(3, 4))
        (net(torch.ones(3, 4)) - aim).sum().backward()
        optimizer.step()
"""


def test_a_teacher_is_reported_with_all_others(train) -> None:
    facts = train(NET + OTHER + "distil(torch.optim.SGD(net.parameters(), 0.1))").journal.facts
    assert facts["model/Teacher/gradients"] == "2 10 2 10 0.weight"
    assert facts["model/Sequential/gradients"] == "6 50 0 0 "


def test_a_teacher_that_was_trained_before_is_reported_too(train) -> None:
    program = "train(torch.optim.SGD(teacher.parameters(), 0.1), model=teacher)\n"
    facts = train(NET + OTHER + program + "distil(torch.optim.SGD(net.parameters(), 0.1))").journal.facts
    assert facts["model/Teacher/gradients"] == "2 10 2 10 0.weight"


def test_another_model_of_the_same_class_is_reported(train) -> None:
    program = NET + OTHER.replace("Teacher(nn.Linear(4, 2))", "nn.Sequential(nn.Linear(4, 2))")
    facts = train(program + "distil(torch.optim.SGD(net.parameters(), 0.1))").journal.facts
    reported = [value for key, value in sorted(facts.items()) if key.endswith("/gradients")]
    assert sorted(reported) == ["2 10 2 10 0.weight", "6 50 0 0 "]


@pytest.mark.parametrize(
    "program",
    [
        """
train(torch.optim.SGD(teacher.parameters(), 0.1), model=teacher)
distil(torch.optim.SGD(net.parameters(), 0.1), torch.no_grad)
""",
        """
train(torch.optim.SGD(net.parameters(), 0.1))
net[0].requires_grad_(False)
train(torch.optim.SGD(net[1:].parameters(), 0.1))
""",
        """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(100, 4), nn.Linear(4, 2)
    def forward(self, x):
        return self.out(self.table(torch.arange(90, 93)))
words = Words()
def by_hand():
    words.table.weight.data[90:93] -= 0.1 * words.table.weight.grad[90:93]
train(torch.optim.SGD(words.out.parameters(), 0.1), model=words, after=by_hand)
""",
    ],
    ids=["trained before", "frozen later", "rows by hand"],
)
def test_old_gradients_and_rows_of_tables_are_not_reported(train, program: str) -> None:
    facts = train(NET + OTHER + program).journal.facts
    assert not [key for key in facts if key.endswith("/gradients")]


@pytest.mark.parametrize(
    ("program", "reported"),
    [
        ("train(torch.optim.SGD(net[1:].parameters(), 0.1))", "6 50 2 20 0.weight"),
        ("train(torch.optim.SGD(net.parameters(), 0.1))", None),
        ("net[0].requires_grad_(False)\ntrain(torch.optim.SGD(net[1:].parameters(), 0.1))", None),
        (
            """
def by_hand():
    with torch.no_grad():
        for parameter in net[0].parameters(): parameter -= 0.1 * parameter.grad
train(torch.optim.SGD(net[1:].parameters(), 0.1), after=by_hand)
""",
            None,
        ),
        (
            """
def by_hand():
    for parameter in net[0].parameters(): parameter.data.add_(parameter.grad.data, alpha=-0.1)
train(torch.optim.SGD(net[1:].parameters(), 0.1), after=by_hand)
""",
            None,
        ),
        (
            """
first, second = torch.optim.SGD(net[:1].parameters(), 0.1), torch.optim.Adam(net[1:].parameters())
train(second, after=first.step)
""",
            None,
        ),
        (
            """
train(torch.optim.SGD(net[1:].parameters(), 0.1))
for look in journal.every_interval: look()
train(torch.optim.Adam(net.parameters()))
""",
            "6 50 0 0 ",
        ),
    ],
    ids=["left out", "all trained", "frozen", "by hand", "through data", "two optimizers", "trained later"],
)
def test_only_what_is_not_changed_is_reported(train, program: str, reported: str | None) -> None:
    done = train(NET + program)
    assert done.journal.facts.get("model/Sequential/gradients") == reported


def test_gradients_and_weights_are_as_without_it(train) -> None:
    done = train(
        NET
        + """
import copy
from perfwrap_recorder.probes.loop import unused_gradients
other = copy.deepcopy(net)
train(torch.optim.SGD(net[1:].parameters(), 0.1))
unused_gradients.look = lambda *arguments: None
train(torch.optim.SGD(other[1:].parameters(), 0.1), model=other)
for mine, theirs in zip(net.parameters(), other.parameters()):
    assert torch.equal(mine, theirs) and torch.equal(mine.grad, theirs.grad)
"""
    )
    assert done.returncode == 0


def test_no_method_of_the_programs_own_is_run(train) -> None:
    done = train(
        """
asked = []
class Own(nn.Linear):
    def parameters(self, *arguments): asked.append("parameters"); return super().parameters(*arguments)
    def named_parameters(self, *arguments, **options):
        asked.append("named_parameters")
        return super().named_parameters(*arguments, **options)
maker, judge = Own(3, 4), nn.Linear(4, 1)
mine, theirs = ([each.weight, each.bias] for each in (maker, judge))
of_maker, of_judge = torch.optim.SGD(mine, 0.1), torch.optim.SGD(theirs, 0.1)
for _ in range(40):
    for optimizer in (of_judge, of_maker):
        optimizer.zero_grad()
        judge(maker(torch.ones(2, 3))).sum().backward()
        optimizer.step()
assert not asked, asked
"""
    )
    assert done.journal.facts["model/Own/parameters"] == "16"
