"""Steps of learning rate schedulers are recorded once each, under the name of their class."""

from __future__ import annotations

SETUP = """
from torch.optim import lr_scheduler
parameter = nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
optimizer = torch.optim.SGD([parameter], lr=0.1)
"""


def test_every_kind_of_scheduler_is_seen(train) -> None:
    done = train(
        SETUP
        + """
def make(kind): return kind(torch.optim.SGD([parameter], lr=0.1))
schedulers = [
    make(lambda o: lr_scheduler.StepLR(o, 1)),
    make(lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5)),
    make(lambda o: lr_scheduler.CosineAnnealingLR(o, 10)),
    make(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 10)),
    make(lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10)),
    make(lambda o: torch.optim.swa_utils.SWALR(o, 0.1)),
]
plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
optimizer.step()
for scheduler in schedulers:
    scheduler.optimizer.step()
    scheduler.step()  # STEP
plateau.step(1.0)
"""
    )
    spans = done.journal.of("SCHEDULER")
    assert [span.label for span in spans] == [
        "StepLR.step",
        "LambdaLR.step",
        "CosineAnnealingLR.step",
        "CosineAnnealingWarmRestarts.step",
        "OneCycleLR.step",
        "SWALR.step",
        "ReduceLROnPlateau.step",
    ]
    program = (done.run_dir / "program.py").read_text().splitlines()
    assert all("STEP" in program[span.line[1] - 1] for span in spans[:-1])


def test_schedulers_inside_another_are_part_of_it(train) -> None:
    done = train(
        SETUP
        + """
import warnings; warnings.simplefilter("ignore")  # older versions warn of what they do themselves
parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
sequence = lr_scheduler.SequentialLR(optimizer, parts, [2])
optimizer.step()
for _ in range(3): sequence.step()
chain = lr_scheduler.ChainedScheduler(parts)
chain.step()
"""
    )
    labels = [span.label for span in done.journal.of("SCHEDULER")]
    assert labels == ["SequentialLR.step"] * 3 + ["ChainedScheduler.step"]


def test_a_class_of_the_users_is_seen_where_it_calls_torchs_step(train) -> None:
    done = train(
        SETUP
        + """
class Warm(lr_scheduler.LRScheduler):
    def get_lr(self): return [0.1]
class Loud(Warm):
    def step(self, *arguments):
        super().step(*arguments)
for kind in (Warm, Loud):
    scheduler = kind(optimizer)
    optimizer.step()
    scheduler.step()
"""
    )
    assert [span.label for span in done.journal.of("SCHEDULER")] == ["Warm.step", "Loud.step"]


def test_learning_rates_warnings_and_state_are_as_without(train) -> None:
    done = train(
        SETUP
        + """
import copy, pickle, warnings
scheduler = lr_scheduler.StepLR(optimizer, 2, 0.5)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    scheduler.step()
print(["before `optimizer.step" in str(warning.message) for warning in caught])
optimizer.step()
scheduler.step()
print(scheduler.get_last_lr(), sorted(scheduler.state_dict())[:2])
print(pickle.loads(pickle.dumps(scheduler)).last_epoch, copy.deepcopy(scheduler).last_epoch)
"""
    )
    assert done.stdout.splitlines() == [
        "[True]",
        "[0.05] ['_get_lr_called_within_step', '_initial_step']",
    ] or (done.stdout.splitlines()[0] == "[True]" and done.stdout.splitlines()[-1] == "2 2")
