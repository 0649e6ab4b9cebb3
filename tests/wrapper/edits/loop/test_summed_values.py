from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "summed_values"
PROGRAM = """
import torch

def train(model, loader, optimizer):
    running = 0.0
    for step, (x, y) in enumerate(loader):
        loss = model(x, y)
        loss.backward()
        running += loss.item() * x.size(0)  # here
    return running / len(loader)
"""


def test_the_sum_is_read_after_the_loop(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "-        running += loss.item() * x.size(0)  # here\n"
        "+        running += loss.detach().double() * x.size(0)  # here\n+    running = float(running)"
    )


def test_the_sum_is_that_of_python_to_the_last_bit(apply: Callable[..., str]) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    found = edit(NAME, PROGRAM, Target(9))
    assert isinstance(found, Edited)
    weight = torch.nn.Parameter(torch.ones(()))
    torch.manual_seed(0)
    batches = [(torch.randn(3), torch.randn(3)) for _ in range(50)]
    sums = []
    for text in (PROGRAM, found.text):
        names: dict[str, object] = {}
        exec(text, names)
        sums.append(names["train"](lambda x, y: (weight * x - y).pow(2).mean(), batches, None))
    assert sums[0] == sums[1] and type(sums[1]) is float


def test_reads_now_and_then_are_read_there(apply: Callable[..., str]) -> None:
    program = """
    for epoch in range(2):
        total_loss, count = 0, 0
        for step, x in enumerate(loader):
            total_loss += float(loss(x).detach().cpu())  # here
            if step % 100 == 99:
                print(total_loss / 100)
                total_loss = 0
        print(total_loss)
    """
    assert apply(NAME, program) == (
        "-        total_loss += float(loss(x).detach().cpu())  # here\n"
        "+        total_loss += loss(x).detach().double()  # here\n"
        "-            print(total_loss / 100)\n+            print(float(total_loss) / 100)\n"
        "+    total_loss = float(total_loss)"
    )


@pytest.mark.parametrize("count", ["(output == y).sum()", "output.argmax(1).eq(y).sum()"])
def test_a_count_stays_a_whole_number(count: str, apply: Callable[..., str]) -> None:
    program = f"""
    correct, seen = 0, 0
    for x, y in loader:
        correct += {count}.item()  # here
    print(correct / seen)
    """
    assert apply(NAME, program) == (
        f"-    correct += {count}.item()  # here\n+    correct += {count}  # here\n+correct = int(correct)"
    )


def test_a_mean_of_floats_is_a_float(apply: Callable[..., str]) -> None:
    program = "right = 0\nfor x in y:\n    right += (x == 1).float().mean().item()  # here\nprint(right)\n"
    assert "+    right += (x == 1).float().mean().detach().double()  # here" in apply(NAME, program)


@pytest.mark.parametrize("begin", ["0.0", "None"])
def test_a_count_that_does_not_begin_as_a_whole_number_stays(begin: str, refuse: Callable[..., str]) -> None:
    program = f"a = {begin}\nfor x in y:\n    a += (x == 1).sum().item()  # here\nprint(a)\n"
    assert "does not begin" in refuse(NAME, program)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("# here", "# here\n        print(running)", "Line 9 reads running in each round"),
        ("running = 0.0", "running = None", "does not begin as a number"),
        ("running += loss.item()", "running += math.sqrt(loss.item())", "does more with the value"),
        (
            "        running += loss.item() * x",
            "        n += 1; print(running); running += loss.item() * x",
            "reads",
        ),
        ("running += loss.item()", "running = running + loss.item()", "does not add a value"),
        ("running += loss.item()", "running += correct.item()", "may count"),
        ("running += loss.item()", "self.running += loss.item()", "does not add a value"),
        ("    running = 0.0", "    global running\n    running = 0.0", "variable of another function"),
        ("    running = 0.0", "    running = 0.0\n    f = lambda: running", "in another function"),
        ("loss.item()", "loss.item() + other.item()", "several calls"),
        ("running += loss.item()", "running += 1", "no call of item"),
        ("    return running", "    running = max(running, 1.0)\n    return running", "also sets running"),
    ],
)
def test_what_may_change_the_program_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))


def test_a_sum_that_an_exception_handler_reads_is_refused(refuse: Callable[..., str]) -> None:
    program = """
    def train():
        total = 0.0
        try:
            for x in loader:
                total += loss.item()  # here
        except KeyboardInterrupt:
            print(total)
    """
    assert "an exception ends the loop" in refuse(NAME, program)
