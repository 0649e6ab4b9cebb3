"""Steps of optimizers are recorded once each, for every caller and after every error."""

from __future__ import annotations

import pytest


def test_several_instances_are_distinguished_even_after_one_is_gone(train) -> None:
    done = train("""
import gc
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
first, second = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))
first.step(), second.step(), first.step()
del first
gc.collect()
torch.optim.SGD([parameter], lr=0.1).step()
""")
    assert [span.label for span in done.journal.of("OPTIMIZER")] == ["SGD#1", "SGD#2", "SGD#1", "SGD#3"]


def test_instances_without_end_are_bounded(train) -> None:
    done = train("""
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
for _ in range(300): torch.optim.SGD([parameter], lr=0.1).step()
from perfwrap_recorder.probes.loop import optimizer
print(len(optimizer._numbers))
""")
    spans = done.journal.of("OPTIMIZER")
    assert len(spans) == 300
    assert spans[-1].label == "SGD#more"
    assert int(done.stdout) <= 100


def test_a_closure_is_part_of_the_step_and_its_reads_are_the_users(train) -> None:
    done = train("""
net = nn.Linear(2, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = net(torch.ones(1, 2)).pow(2).sum()
    loss.backward()
    loss.item()  # MINE
    return loss
optimizer.step(closure)
""")
    (step,) = done.journal.of("OPTIMIZER")
    assert step.label == "LBFGS#1"
    inner = done.journal.of("FORWARD", "BACKWARD", "SYNC")
    assert all(step.start <= span.start <= step.start + step.duration for span in inner)
    program = (done.run_dir / "program.py").read_text().splitlines()
    syncs = done.journal.of("SYNC")
    assert {program[span.line[1] - 1].strip() for span in syncs} == {"loss.item()  # MINE"}
    assert len(syncs) == len(done.journal.of("FORWARD"))
    closures = done.journal.of("CLOSURE")
    assert all(
        any(around.start <= span.start and end_of(span) <= end_of(around) for around in closures)
        for span in inner
    )


def end_of(span) -> int:
    return span.start + span.duration


@pytest.mark.parametrize(
    "kind", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Rprop"]
)
def test_what_is_in_a_closure_is_known_for_each_optimizer(train, kind) -> None:
    done = train(
        """
import time
net = nn.Linear(2, 1)
optimizer = torch.optim.KIND(net.parameters(), lr=0.1)
def closure():
    optimizer.zero_grad()
    loss = net(torch.ones(1, 2)).sum()
    with torch.enable_grad(): time.sleep(0.02)
    loss.backward()
    return loss
for _ in range(3): optimizer.step(closure)
optimizer.step()
""".replace("KIND", kind)
    )
    steps, closures = done.journal.of("OPTIMIZER"), done.journal.of("CLOSURE")
    assert (len(steps), len(closures)) == (4, 3)
    for step, closure in zip(steps, closures, strict=False):
        assert step.start < closure.start < closure.start + closure.duration < step.start + step.duration
        assert closure.duration > 20_000_000


def test_only_the_optimizers_own_context_is_around_a_closure(train) -> None:
    done = train("""
from torch.utils.checkpoint import checkpoint
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step(x):  # called like a function of an optimizer
    with torch.enable_grad(): return net(x)
def closure():
    optimizer.zero_grad()
    loss = checkpoint(step, torch.ones(1, 2, requires_grad=True), use_reentrant=True).sum()
    loss.backward()
    return loss
step(torch.ones(1, 2))
optimizer.step(closure)
""")
    assert len(done.journal.of("CLOSURE")) == 1


def test_a_closure_that_raises_does_not_spoil_the_next(train) -> None:
    done = train("""
parameter = nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], lr=0.1)
def fail(): raise RuntimeError("no memory")
def work(): parameter.grad = torch.ones(2)
for closure in (fail, work, fail, work):
    try: optimizer.step(closure)
    except RuntimeError as error: assert error.__context__ is None
""")
    assert len(done.journal.of("OPTIMIZER")) == 2
    assert len(done.journal.of("CLOSURE")) in (2, 4)


def test_a_step_that_raises_does_not_spoil_the_next(train) -> None:
    done = train("""
class Failing(torch.optim.SGD):
    fail = False
    def step(self, closure=None):
        if self.fail: raise RuntimeError("no memory")
        return super().step(closure)
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
optimizer, other = Failing([parameter], lr=0.1), torch.optim.SGD([parameter], lr=0.1)
for fail in (False, True, False, True):
    optimizer.fail = fail
    try: optimizer.step()
    except RuntimeError as error: assert error.__context__ is None
other.step()
parameter.sum().item()
""")
    labels = [span.label for span in done.journal.of("OPTIMIZER")]
    assert labels == ["Failing#1", "Failing#1", "SGD#2"]
    assert len(done.journal.of("SYNC")) == 1


def test_an_optimizer_inside_another_is_recorded_inside_it(train) -> None:
    done = train("""
class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, {})
    def step(self, closure=None):
        return self.inner.step(closure)
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
Lookahead(torch.optim.SGD([parameter], lr=0.1)).step()
""")
    outer, inner = done.journal.of("OPTIMIZER")
    assert (outer.label.split("#")[0], inner.label.split("#")[0]) == ("Lookahead", "SGD")
    assert outer.start <= inner.start and inner.duration <= outer.duration


@pytest.mark.parametrize("before", [1, 0], ids=["torch's step is hooked", "it is not"])
def test_a_step_that_the_program_puts_around_torchs_is_the_same_step(train, before: int) -> None:
    """Once there was an optimizer of the class, torch has put its hooks into both steps."""
    done = train(f"""
def steps(number):
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(number):
        optimizer.step()
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
steps({before}) if {before} else None
inner = torch.optim.SGD.step
torch.optim.SGD.step = lambda self, closure=None: inner(self, closure)
steps(3)
""")
    assert len(done.journal.of("OPTIMIZER")) == before + 3


def test_a_scheduler_does_not_hide_the_users_line(train) -> None:
    done = train("""
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
def mine():
    optimizer.step()
mine()
scheduler.step()
""")
    (step,) = done.journal.of("OPTIMIZER")
    assert step.line[2] == "mine"


ODD = """
class Plain:
    # As some libraries' optimizers: no relation of torch's.
    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters), "lr": 0.01}]
    def zero_grad(self):
        for parameter in self.param_groups[0]["params"]: parameter.grad = None
    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]: parameter -= 0.01 * parameter.grad
class Unborn(torch.optim.Optimizer):
    # Inherits, and never calls Optimizer.__init__.
    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters), "lr": 0.01}]
    zero_grad, step = Plain.zero_grad, Plain.step
class Wrapped:
    # As LARC or Lightning's: has a real one inside.
    def __init__(self, parameters): self.inner = torch.optim.SGD(parameters, lr=0.01)
    def zero_grad(self): self.inner.zero_grad()
    def step(self): self.inner.step()
class Eight(torch.optim.Optimizer):
    # As bitsandbytes' and apex's: inherits, has a step of its own.
    def __init__(self, parameters): super().__init__(parameters, {"lr": 0.01})
    step = Plain.step
def replaced(parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    optimizer.step = Plain.step.__get__(optimizer)
    return optimizer
"""


def test_who_inherits_or_wraps_is_seen_and_who_does_neither_is_not(train) -> None:
    done = train(
        ODD
        + """
for kind in (Eight, Wrapped, Plain, Unborn, replaced):
    net = nn.Linear(2, 1)
    optimizer = kind(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""
    )
    assert [span.label for span in done.journal.of("OPTIMIZER")] == ["Eight#1"] * 3 + ["SGD#2"] * 3
    assert len(done.journal.of("BACKWARD")) == 15


@pytest.mark.parametrize("kind", ["Plain", "Unborn", "replaced"])
def test_steps_without_a_known_optimizer_are_counted_by_their_backward_passes(train, kind: str) -> None:
    done = train(
        ODD
        + f"""
net = nn.Linear(2, 1)
optimizer = {kind}(net.parameters())
for _ in range(4000):
    optimizer.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
    )
    assert not done.journal.of("OPTIMIZER")
    assert -1 in {thin.value for thin in done.journal.of("THIN")}, "steps as short as these make probes rest"
    counts = dict.fromkeys(("BACKWARD", "FORWARD"), 0)
    for (found, _), (count, _) in done.journal.totals().items():
        if found in counts:
            counts[found] += count
    assert counts["BACKWARD"] == 4000 > counts["FORWARD"]


def test_nothing_of_a_class_of_the_users_is_asked(train) -> None:
    done = train("""
class Asked(torch.optim.SGD):
    @property
    def param_groups(self):
        if sys._getframe(1).f_code.co_filename.endswith("perfwrap importlib._bootstrap>"): print("asked")
        return self.__dict__["groups"]
    @param_groups.setter
    def param_groups(self, groups): self.__dict__["groups"] = groups
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
Asked([parameter], lr=0.1).step()
""")
    assert done.stdout == ""
    assert done.journal.facts["optimizer/Asked#1/class"].endswith("Asked")


def test_the_rows_of_an_embedding_that_have_gradients_are_counted_once(train) -> None:
    done = train("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.top = nn.Embedding(40_000, 4), nn.Linear(4, 1)
    def forward(self, x): return self.top(self.table(x))
net = Net()
optimizer = torch.optim.Adam(net.parameters())
before = torch.get_rng_state()
for _ in range(2):
    optimizer.zero_grad()
    net(torch.arange(400) * 100).sum().backward()
    optimizer.step()
dense = torch.optim.SGD(net.top.parameters(), lr=0.1)
dense.step()
print(torch.equal(before, torch.get_rng_state()))
""")
    facts = done.journal.facts
    assert done.stdout.strip() == "True"
    assert facts["optimizer/Adam#1/elements"] == str(160_000 + 5)
    assert facts["optimizer/Adam#1/embedding_rows"] == "40000"
    assert facts["optimizer/Adam#1/embedding_elements"] == "160000"
    assert 0.005 <= float(facts["optimizer/Adam#1/embedding_touched"]) <= 0.02
    assert "optimizer/SGD#2/embedding_rows" not in facts
    assert not [span for span in done.journal.of("SYNC") if span.label == "Tensor.item"]


def test_a_parameter_that_a_program_indexes_is_a_table(train) -> None:
    done = train("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.entities = nn.Parameter(torch.randn(40_000, 4))  # indexed
        self.inner = nn.Parameter(torch.randn(4_000, 40))  # multiplied
        self.down, self.up = nn.Parameter(torch.randn(4_000, 40)), nn.Parameter(torch.zeros(40, 1))  # as of LoRA
        self.top = nn.Linear(40, 4_000)
    def forward(self, ids, x):
        rows = torch.index_select(self.entities, 0, ids).sum()
        hidden = torch.relu(x @ self.inner)
        return rows + self.top(hidden).relu().sum() + (x @ self.down @ self.up).sum()
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(2):
    optimizer.zero_grad()
    net(torch.arange(400) * 100, torch.randn(8, 4_000)).sum().backward()
    optimizer.step()
""")
    facts = done.journal.facts
    assert done.stderr == ""
    assert facts["optimizer/Adam#1/embedding_rows"] == "40000", (
        "not those with gradients in all rows, or in none"
    )
    assert facts["optimizer/Adam#1/embedding_elements"] == "160000"
    assert 0.005 <= float(facts["optimizer/Adam#1/embedding_touched"]) <= 0.02


def test_what_the_recorder_does_after_a_step_is_its_own_time_if_that_is_long(train) -> None:
    done = train("""
import time
from perfwrap_recorder.probes.loop import model_facts, unused_gradients
model_facts.describe = lambda *arguments: time.sleep(0.02)
unused_gradients.look = lambda *arguments: time.sleep(0.03)
net = nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    net(torch.ones(2)).sum().backward()
    optimizer.step()
""")
    read = done.journal
    for kind, least in ("FORWARD", 20_000_000), ("OPTIMIZER", 30_000_000):
        ends = {span.start + span.duration for span in read.of(kind)}
        own = [span.duration for span in read.of("PERFWRAP") if span.label == "probes" and span.start in ends]
        assert max(own) >= least
