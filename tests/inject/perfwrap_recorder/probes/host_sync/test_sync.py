"""Every way in which a value comes to the host is seen once, with the user's line where that matters."""

from __future__ import annotations

import pytest

CALLS = (
    ("t.item()", "item"),
    ("t.tolist()", "tolist"),
    ("t.numpy()", "numpy"),
    ("t.nonzero()", "nonzero"),
    ("t.nonzero(as_tuple=True)", "nonzero"),
    ("bool(t)", "__bool__"),
    ("assert t", "__bool__"),
    ("float(t)", "__float__"),
    ("int(t)", "__int__"),
    ("complex(t)", "__complex__"),
    ("t.equal(t)", "equal"),
    ("t.allclose(t)", "allclose"),
    ("t.is_nonzero()", "is_nonzero"),
    ("t.masked_select(t > 0)", "masked_select"),
    ("range(n)", "__index__"),
    ("[1, 2, 3][n]", "__index__"),
    ("repr(t)", "__repr__"),
    ("'%s' % t", "__repr__"),
    ("f'{t:.2f}'", "__format__"),
    ("numpy.asarray(t)", "numpy"),
    ("nn.Parameter(t).item()", "item"),
    ("t.as_subclass(Sub).item()", "item"),
    ("with_mode(t.item)", "item"),
)


@pytest.fixture(scope="module")
def seen(train) -> list[tuple[str, tuple[str, int, str] | None]]:
    """What was recorded of all of them, each in a function of its own."""
    program = """
import numpy
t, n = torch.ones(()), torch.tensor(2)
class Sub(torch.Tensor): pass
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
def with_mode(function):
    with Mode(): return function()
"""
    for number, (call, _) in enumerate(CALLS):
        program += f"journal.steps += 1\ndef call_{number}():\n    {call}\ncall_{number}()\n"
    return [(found.label, found.line) for found in train(program).journal.of("SYNC")]


def test_each_is_recorded_once(seen) -> None:
    assert [label for label, _ in seen] == [f"Tensor.{name}" for _, name in CALLS]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_each_has_the_users_line(seen, number: int) -> None:
    place = seen[number][1]
    expected = "with_mode" if "with_mode" in CALLS[number][0] else f"call_{number}"
    assert (place[0], place[2]) == ("program.py", expected)


def test_values_that_are_not_finite_are_noted_with_their_line(train) -> None:
    found = train("""
for value in (1.0, float("nan"), float("inf"), float("-inf"), 3, True):
    torch.tensor(value).item()
float(torch.tensor(float("nan")))
""").journal.of("NON_FINITE")
    import struct

    values = [repr(struct.unpack("<d", struct.pack("<q", record.value))[0]) for record in found]
    assert values == ["nan", "inf", "-inf", "nan"]
    assert [record.label for record in found] == ["Tensor.item"] * 3 + ["Tensor.__float__"]
    assert found[3].line[1] - found[0].line[1] == 1


def test_many_short_calls_of_one_step_are_counted_and_some_are_located(train) -> None:
    found = train("""
t = torch.ones(())
for _ in range(2_000): t.item()
""").journal.of("SYNC")
    assert len(found) == 2_000
    located = [record for record in found if record.line]
    assert 2_000 // 8 <= len(located) < 2_000
    assert len({record.line for record in located}) == 1
    assert all(record.line for record in found[:8])


def test_errors_are_those_of_torch_and_leave_no_trace(train, run_bare) -> None:
    done = train("""
many = torch.ones(3)
for call in (many.item, lambda: bool(many), lambda: float(many), lambda: many.requires_grad_().numpy()):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error, error.__context__, error.__cause__)
torch.ones(()).item()
""")
    bare = """
import torch
many = torch.ones(3)
for call in (many.item, lambda: bool(many), lambda: float(many), lambda: many.requires_grad_().numpy()):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error, error.__context__, error.__cause__)
"""
    assert done.stdout == run_bare(bare)
    assert [record.label for record in done.journal.of("SYNC")] == ["Tensor.item"]


@pytest.mark.parametrize(
    "before",
    [
        "",
        "with torch.no_grad(): float(leaf)",
        "paused_detail.paused.update(paused_detail.PAUSABLE)",
    ],
    ids=["at once", "after one without gradients", "in a rest"],
)
def test_a_warning_names_the_users_line(train, before: str) -> None:
    done = train(
        f"""
import warnings
from perfwrap_recorder.journal import paused_detail
def convert(value):
    return float(value)  # CONVERT
leaf = torch.ones((), requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {before}
    assert convert(torch.ones((), requires_grad=True) * 2) == 2.0
    convert(torch.ones((), requires_grad=True) * 2)
print([(os.path.basename(w.filename), w.lineno) for w in caught])
"""
    )
    program = (done.run_dir / "program.py").read_text().splitlines()
    line = next(number for number, text in enumerate(program, 1) if text.endswith("# CONVERT"))
    assert done.stdout in (f"[('program.py', {line})]\n", "[]\n")  # [] of a torch that does not warn


def test_warnings_of_a_tracer_name_the_users_lines(train) -> None:
    done = train(
        """
import warnings
def work(value):
    if value.sum() > 3:  # LINE
        value = value + 1
    size = int(value.sum())  # LINE
    value.tolist()  # LINE
    value.numpy()  # LINE
    return value * float(value.mean()) + size  # LINE
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("default")
    torch.jit.trace(work, torch.ones(4), check_trace=False)
print(*sorted(w.lineno for w in caught if w.filename == __file__))
print([w.filename for w in caught if "perfwrap" in w.filename])
"""
    )
    program = (done.run_dir / "program.py").read_text().splitlines()
    lines = [number for number, text in enumerate(program, 1) if text.endswith("# LINE")]
    named, ours = done.stdout.splitlines()
    assert [int(number) for number in named.split()] == lines
    assert ours == "[]"


def test_threads_do_not_disturb_each_other(train) -> None:
    found = train("""
import threading
t = torch.ones(())
def work():
    for _ in range(300): f"{t:.1f}", t.item()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""").journal.of("SYNC")
    labels = [record.label for record in found]
    assert (labels.count("Tensor.item"), labels.count("Tensor.__format__")) == (1_200, 1_200)


def test_a_fork_inside_a_call_does_not_silence_the_child(train) -> None:
    done = train("""
class Forking(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        if function.__name__ == "item":
            child = os.fork()
            if child: os.waitpid(child, 0)
            else: print("child", flush=True)
        return result
torch.ones(()).as_subclass(Forking).item()
torch.ones(()).item()
""")
    assert len(done.journals) == 2
    for journal in done.journals:
        assert len(journal.of("SYNC")) == 2
