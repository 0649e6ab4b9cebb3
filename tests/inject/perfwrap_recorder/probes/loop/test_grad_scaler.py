"""Steps of gradient scalers are recorded, and skips are distinguished from steps without a GPU synchronisation."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", "2.3", reason="a GradScaler on a CPU needs torch 2.3")

SCALER = """
Scaler = getattr(torch.amp, "GradScaler", None)
if Scaler is None: sys.exit()
scaler = Scaler("cpu")
net = nn.Linear(2, 1)
def train(optimizer, is_bad):
    for parameter in net.parameters(): parameter.grad = None
    scaler.scale(net(torch.ones(1, 2)).sum()).backward()
    if is_bad: net.weight.grad.fill_(float("inf"))
    scaler.step(optimizer)  # STEP
    scaler.update()
"""


def outcomes(done) -> list[tuple[str, int]]:
    """Return name and value of the scaler's steps."""
    return [(span.label, span.value) for span in done.journal.of("SCALER_STEP")]


STEPPED, SKIPPED, UNKNOWN = ("GradScaler.step", 0), ("GradScaler.step skipped", 1), ("GradScaler.step", -1)


def test_skips_are_distinguished_from_steps(train) -> None:
    done = train(
        SCALER
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for is_bad in (True, False, True, False): train(optimizer, is_bad)
"""
    )
    assert outcomes(done) == [SKIPPED, STEPPED, SKIPPED, STEPPED]
    assert len(done.journal.of("OPTIMIZER")) == 2
    assert not done.journal.of("SYNC")


def test_a_scheduler_around_the_step_does_not_hide_a_skip(train) -> None:
    done = train(
        SCALER
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for is_bad in (True, False): train(optimizer, is_bad)
"""
    )
    assert outcomes(done) == [SKIPPED, STEPPED]


def test_no_skip_is_claimed_of_an_optimizer_whose_steps_torch_does_not_hook(train) -> None:
    done = train(
        SCALER
        + """
class Plain:
    def __init__(self, parameters):
        self.param_groups = [{"params": list(parameters)}]
    def step(self): pass
plain = Plain(net.parameters())
replaced = torch.optim.SGD(net.parameters(), lr=0.1)
replaced.step = lambda: None
for optimizer in (plain, replaced): train(optimizer, False)
"""
    )
    assert outcomes(done) == [UNKNOWN, UNKNOWN]


def test_a_replaced_step_that_was_seen_to_call_the_original_is_known_from_then_on(train) -> None:
    done = train(
        SCALER
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
original = optimizer.step
optimizer.step = lambda: original()
for is_bad in (True, False, True): train(optimizer, is_bad)
"""
    )
    assert outcomes(done) == [UNKNOWN, STEPPED, SKIPPED]


def test_a_fused_optimizer_keeps_its_secret(train) -> None:
    done = train(
        SCALER
        + """
try: optimizer = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
except RuntimeError: sys.exit(0)
for is_bad in (False, True): train(optimizer, is_bad)
"""
    )
    assert outcomes(done) in ([UNKNOWN, UNKNOWN], [])


def test_a_step_that_raises_leaves_nothing_behind(train) -> None:
    done = train(
        SCALER
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train(optimizer, False)
scaler.step(optimizer)
try: scaler.step(optimizer)
except (RuntimeError, AssertionError): pass
else: raise SystemExit("it was to raise")
from perfwrap_recorder.probes.loop.optimizer import awaiting
assert not awaiting
"""
    )
    assert outcomes(done) == [STEPPED, STEPPED]


def test_what_the_scaler_is_set_to_is_said(train) -> None:
    done = train(
        SCALER
        + "train(torch.optim.SGD(net.parameters(), lr=0.1), False)\n"
        + "train(torch.optim.SGD(net.parameters(), lr=0.1), False)"
    )
    facts = {key: value for key, value in done.journal.facts.items() if key.startswith("scaler/")}
    assert facts == {
        "scaler/enabled": "True",
        "scaler/init_scale": "65536.0",
        "scaler/growth_factor": "2.0",
        "scaler/backoff_factor": "0.5",
        "scaler/growth_interval": "2000",
    }


@pytest.mark.parametrize("budget", [8 << 20, 64 << 10])
def test_the_number_of_skips_is_exact_whatever_is_thinned(train, budget: int) -> None:
    done = train(
        SCALER
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(2000): train(optimizer, number % 20 == 0)
""",
        budget=budget,
    )
    assert done.journal.of("SUM SCALER_STEP")
    counts = {name.split("\x1f")[0]: count for (kind, name), (count, _) in done.journal.totals().items()
              if kind == "SCALER_STEP"}  # fmt: skip
    assert counts == {"GradScaler.step": 1900, "GradScaler.step skipped": 100}
