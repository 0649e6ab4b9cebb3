"""The second forward passes of activation checkpointing are recorded, with the line that called the checkpoint."""

from __future__ import annotations

import pytest

NET = """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
x = torch.ones(8, 64, requires_grad=True)
"""

WAYS = pytest.mark.parametrize(
    "reentrant",
    [
        True,
        pytest.param(
            False,
            marks=pytest.mark.skipif(
                "tuple(map(int, __import__('torch').__version__.split('.')[:2])) < (2, 1)",
                reason="recorded since PyTorch 2.1",
            ),
        ),
    ],
)


def spans_of(done, kind: str) -> list:
    return done.journal.of(kind)


@WAYS
def test_each_is_recorded_in_the_backward_pass_with_the_line_of_the_checkpoint(
    train, reentrant: bool
) -> None:
    done = train(
        NET
        + f"""
y = checkpoint(net[:2], x, use_reentrant={reentrant})  # FIRST
y = checkpoint(net[2:], y, use_reentrant={reentrant})  # SECOND
y.sum().backward()
"""
    )
    spans = spans_of(done, "RECOMPUTE")
    program = (done.run_dir / "program.py").read_text().splitlines()
    assert {span.label for span in spans} == {"checkpoint"}
    marks = [program[int(span.name.split("\x1f")[2]) - 1].rpartition("# ")[2] for span in spans]
    assert sorted(marks) == ["FIRST", "SECOND"]
    whole = max(spans_of(done, "BACKWARD"), key=lambda span: span.duration)
    for span in spans:
        assert whole.start <= span.start
        assert span.start + span.duration <= whole.start + whole.duration


@WAYS
def test_a_forward_pass_without_backward_has_none(train, reentrant: bool) -> None:
    done = train(NET + f"checkpoint(net, x, use_reentrant={reentrant})\nwith torch.no_grad():\n    net(x)\n")
    assert spans_of(done, "RECOMPUTE") == []
    assert "probe/recomputation" in {found.name for found in done.journal.of("COVERAGE")}


@WAYS
def test_results_and_random_numbers_are_those_of_a_bare_run(same, reentrant: bool) -> None:
    same(
        NET
        + f"""
torch.manual_seed(0)
net.insert(2, nn.Dropout(0.5))
class Inner(nn.Module):
    def forward(self, x): return checkpoint(net[:3], x, use_reentrant={reentrant})
for _ in range(3):
    checkpoint_sequential(nn.Sequential(Inner(), net[3]), 2, x, use_reentrant={reentrant}).sum().backward()
print(x.grad.sum().item(), [p.grad is not None and p.grad.sum().item() for p in net.parameters()])
print(torch.rand(2))
"""
    )


@WAYS
def test_an_error_in_it_reaches_the_program_with_the_same_frames(same, reentrant: bool) -> None:
    same(
        NET
        + f"""
import traceback
calls = []
def layers(x):
    calls.append(1)
    if len(calls) > 1: raise ValueError("second time")
    return net(x)
y = checkpoint(layers, x, use_reentrant={reentrant})
try: y.sum().backward()
except ValueError as error:
    for frame in traceback.extract_tb(error.__traceback__): print(frame.name, frame.lineno)
"""
    )


def test_checkpoints_that_nobody_uses_are_not_kept(train) -> None:
    done = train(
        NET
        + """
from perfwrap_recorder.probes.loop import recomputation
for reentrant in (True, False):
    for _ in range(5):
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        checkpoint(net, x, use_reentrant=reentrant)
print(len(recomputation.pending))
"""
    )
    assert done.stdout.strip() == "0"
