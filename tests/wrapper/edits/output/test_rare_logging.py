from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "rare_logging"


def test_a_counted_loop_prints_now_and_then(apply: Callable[..., str]) -> None:
    program = """
    for step, batch in enumerate(loader):
        # The loss of the step.
        print(f"{step}: {loss.item():.3f}",
              len(batch))  # here
    """
    assert apply(NAME, program, every=50) == (
        '-    print(f"{step}: {loss.item():.3f}",\n-          len(batch))  # here\n'
        '+    if step % 50 == 0:\n+        print(f"{step}: {loss.item():.3f}",\n+              len(batch))  # here'
    )


def test_a_loop_without_a_counter_gets_one(apply: Callable[..., str]) -> None:
    program = """
    for x, y in tqdm(loader):
        step = 1
        pbar.set_postfix(loss=loss.item())  # here
    """
    assert apply(NAME, program, every=10) == (
        "-for x, y in tqdm(loader):\n+for step_2, (x, y) in enumerate(tqdm(loader)):\n"
        "-    pbar.set_postfix(loss=loss.item())  # here\n"
        "+    if step_2 % 10 == 0:\n+        pbar.set_postfix(loss=loss.item())  # here"
    )


@pytest.mark.parametrize(
    "line",
    [
        'sys.stdout.write("%d: %f" % (i, loss.item()))',
        "t.set_description(f'{loss.item():.2f}')",
        "self.board.add_scalar('loss', loss.item(), i)",
        "accelerator.print(loss)",
        "self.logger.info('%s', loss)",
    ],
)
def test_the_forms_of_real_programs_are_known(line: str, apply: Callable[..., str]) -> None:
    changed = apply(NAME, f"for i, x in enumerate(loader):\n    {line}  # here\n", every=50)
    assert changed == f"-    {line}  # here\n+    if i % 50 == 0:\n+        {line}  # here"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("total = print(loss)", "more than print or log"),
        ("print(next(iterator))", "calls next()"),
        ("print(train_step(x))", "calls train_step()"),
        ("print(loss.backward())", "calls loss.backward()"),
        ("print(1); loss.backward()", "not one statement"),
        ("if i % 10 == 0: print(1)", "not one statement"),
        ("results.write(loss)", "more than print or log"),
        ("print((n := n + 1))", "more than print or log"),
    ],
)
def test_what_does_more_is_refused(refuse: Callable[..., str], line: str, reason: str) -> None:
    assert reason in refuse(NAME, f"for i, x in enumerate(loader):\n    {line}  # here\n", every=50)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("while True:", "does not count its rounds"),
        ("for _, x in enumerate(y):", "does not name its counter"),
        ("for i in range(9):\n    i += 1", "changes its counter"),
        ("if x:", "not in a loop"),
    ],
)
def test_loops_without_a_count_are_refused(refuse: Callable[..., str], head: str, reason: str) -> None:
    assert reason in refuse(NAME, f"{head}\n    print(loss)  # here\n", every=50)
