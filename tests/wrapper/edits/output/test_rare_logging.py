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


def test_a_loop_that_only_logs_runs_as_a_whole_or_not_at_all(apply: Callable[..., str]) -> None:
    program = """
    for step, x in enumerate(loader):
        train(x)
        for name, loss in zip(names, losses.tolist()):
            # Each of them.
            log.info("%s %f", name, loss)  # here
            print(name)
    """
    assert apply(NAME, program, every=50) == (
        "-    for name, loss in zip(names, losses.tolist()):\n-        # Each of them.\n"
        '-        log.info("%s %f", name, loss)  # here\n-        print(name)\n'
        "+    if step % 50 == 0:\n+        for name, loss in zip(names, losses.tolist()):\n"
        "+            # Each of them.\n"
        '+            log.info("%s %f", name, loss)  # here\n+            print(name)'
    )


@pytest.mark.parametrize(
    "inner",
    [
        "for x in y:\n        work(x)\n        print(x)  # here",
        "for x in next(y):\n        print(x)  # here",
        "for x in y:\n        print(x)  # here\n    work(x)",
    ],
)
def test_a_loop_that_does_more_stays(apply: Callable[..., str], inner: str) -> None:
    changed = apply(NAME, f"for step in range(9):\n    {inner}\n", every=50)
    assert "+    for step_2, x in enumerate(" in changed and "+        if step_2 % 50 == 0:" in changed


CALLBACKS = """
class Table:
    def on_step_end(self, trainer, step):
        log.info("step %d", step)
        for number in range(60):
            log.debug("%d", number)  # here

class Trainer:
    def fit(self, steps):
        for step in range(steps):
            self.training_step()
            for callback in self.callbacks:
                callback.on_step_end(self, step)
"""


def test_a_function_that_only_logs_is_called_less_often(apply: Callable[..., str]) -> None:
    assert apply(NAME, CALLBACKS, every=50) == (
        "-            for callback in self.callbacks:\n-                callback.on_step_end(self, step)\n"
        "+            if step % 50 == 0:\n"
        "+                for callback in self.callbacks:\n+                    callback.on_step_end(self, step)"
    )


def test_a_while_loop_has_its_own_counter(apply: Callable[..., str]) -> None:
    program = """
    class Trainer:
        def log(self, loss):
            print(self.step, loss.item())  # here

        def train(self):
            while self.step < self.args.max_steps:
                loss = self.training_step()
                self.step += 1
                self.log(loss)
    """
    assert "+            if self.step % 50 == 0:\n+                self.log(loss)" in apply(
        NAME, program, every=50
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('log.info("step %d", step)', "self.total += step", "sets self.total"),
        ('log.info("step %d", step)', "yield step", "does more than log"),
        ('log.info("step %d", step)', "evaluate(trainer)", "calls evaluate()"),
        ("class Trainer:", "def stop(table):\n    table.on_step_end(None, 0)\n\nclass Trainer:", "one place"),
    ],
)
def test_a_function_that_does_more_is_called_as_before(
    apply: Callable[..., str], refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in CALLBACKS
    changed = CALLBACKS.replace(old, new)
    # Its own loop is what is left.
    assert "+            if number % 50 == 0:" in apply(NAME, changed, every=50)
    alone = changed.replace(
        "        for number in range(60):\n            log", "        number = 1\n        log"
    )
    assert reason in refuse(NAME, alone, every=50)
