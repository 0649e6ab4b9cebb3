"""Gradients that a program asks for as values are recorded, and are no backward pass."""

from __future__ import annotations

SETUP = """
net = nn.Linear(2, 1)
x = torch.ones(3, 2, requires_grad=True)
"""


def test_each_call_has_its_line_and_ends_no_step(train) -> None:
    done = train(
        SETUP
        + """
for _ in range(3):
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)  # GRAD
    slope.norm().backward()
from torch.autograd import grad
print([each is not None for each in grad(net(x).sum(), net.parameters(), allow_unused=True)])
"""
    )
    assert done.stdout.splitlines()[-1] == "[True, True]"
    program = (done.run_dir / "program.py").read_text().splitlines()
    found = done.journal.of("GRADIENT")
    assert [span.label for span in found] == ["grad"] * 4
    assert "# GRAD" in program[found[0].line[1] - 1]
    assert len(done.journal.of("BACKWARD")) == 3


def test_a_gradient_in_a_compiled_function_is_part_of_its_compilation(train) -> None:
    done = train(
        SETUP
        + """
compiled = torch.compile(lambda value: net(value).sum(), backend="aot_eager")
compiled(x).backward()
"""
    )
    assert done.journal.of("COMPILE")
    assert not done.journal.of("GRADIENT")
