"""What torch.compile does is recorded: how long it takes, why it is done again, and where graphs break."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")

SETUP = """
import warnings
import logging
logging.disable(logging.WARNING)  # Dynamo's own words about what is provoked here
"""


@pytest.fixture
def compiled(train):
    """Run a program if the version of torch reports its compilations."""

    def run(program: str, **options):
        done = train(
            SETUP + program + "\nprint(hasattr(sys.modules.get('torch._dynamo.callback'), "
            "'CompilationCallbackHandler'))\n",
            **options,
        )
        if done.stdout.splitlines()[-1] != "True":
            pytest.skip("this version of torch does not tell about its compilations")
        return done

    return run


NEEDS_REASONS = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7),
    reason="Dynamo tells why it recompiles from torch 2.7 on",
)


def marks(done, what: str) -> list[list[str]]:
    """Return the fields of all marks of a name."""
    journal = done.journal
    return [journal.texts[found.value].split("\x1f") for found in journal.of("MARK") if found.name == what]


def line_of(done, mark: str) -> str:
    """Return the number of the program's line with that comment."""
    program = (done.run_dir / "program.py").read_text().splitlines()
    (number,) = [number for number, text in enumerate(program, 1) if text.endswith("# " + mark)]
    return str(number)


@pytest.mark.parametrize("fresh", [True, False], ids=["Dynamo comes later", "Dynamo is there"])
def test_a_compilation_is_a_span_inside_the_call_that_needed_it(compiled, fresh: bool) -> None:
    done = compiled(
        """
class Net(nn.Module):
    def forward(self, x):  # FORWARD
        return x * 2
net = torch.compile(Net(), backend="eager")
for _ in range(3): net(torch.ones(3))
""",
        fresh=fresh,
    )
    (span,) = done.journal.of("COMPILE")
    assert (span.label, span.value) == ("compile", 0)
    assert str(span.line[1]) == line_of(done, "FORWARD")
    assert span.line[2].endswith("forward")
    first, *later = done.journal.of("FORWARD")
    assert first.start <= span.start and span.start + span.duration <= first.start + first.duration
    assert len(later) == 2 and span.duration > max(call.duration for call in later)


@NEEDS_REASONS
def test_recompilations_say_what_had_changed(compiled) -> None:
    done = compiled("""
def double(x):  # DOUBLE
    return x * 2
fast = torch.compile(double, backend="eager", dynamic=False)
for rows in (3, 4, 5, 5): fast(torch.ones(rows))
""")
    assert [span.value for span in done.journal.of("COMPILE")] == [0, 1, 2]
    found = marks(done, "recompile")
    assert [(line, name, which) for _, line, name, which, _ in found] == [
        (line_of(done, "DOUBLE"), "double", "1"),
        (line_of(done, "DOUBLE"), "double", "2"),
    ]
    assert all("size mismatch" in reason for *_, reason in found)
    assert done.journal.facts["compile/recompile"] == "2"


@NEEDS_REASONS
def test_a_function_that_is_compiled_too_often_reaches_the_limit(compiled) -> None:
    done = compiled("""
@torch.compile(backend="eager", dynamic=False)
def double(x):
    return x * 2
for rows in range(3, 20): double(torch.ones(rows))
""")
    assert 3 < len(done.journal.of("COMPILE")) < 17
    ((file, _, name, _, reason),) = marks(done, "recompile_limit")
    assert file.endswith("program.py") and name == "double" and "size mismatch" in reason


def test_graph_breaks_bear_the_users_line_and_a_short_reason(compiled) -> None:
    done = compiled("""
def run(x):
    y = x + 1
    print(end="")  # PRINTS
    if y.sum() > 0:  # BRANCHES
        y = y * 2
    return y
fast = torch.compile(run, backend="eager")
for _ in range(3): fast(torch.ones(3))
""")
    found = marks(done, "graph_break")
    assert [line for _, line, *_ in found] == [line_of(done, "PRINTS"), line_of(done, "BRANCHES")]
    assert all(0 < len(reason) < 600 and "\n" not in reason for *_, reason in found)
    assert done.journal.facts["compile/graph_break"] == "2"
    assert not marks(done, "compile_failed")


def test_what_cannot_be_compiled_is_said(compiled) -> None:
    done = compiled("""
def run(x):
    print(end="")  # PRINTS
    return x
try: torch.compile(run, backend="eager", fullgraph=True)(torch.ones(3))
except Exception as error: pass
""")
    ((file, line, *_, reason),) = marks(done, "compile_failed")
    assert file.endswith("program.py") and line == line_of(done, "PRINTS") and reason


def test_a_reset_of_dynamo_does_not_end_the_watch(compiled) -> None:
    done = compiled("""
def run(x):
    print(end="")
    return x * 2
for _ in range(2):
    torch.compile(run, backend="eager")(torch.ones(3))
    torch._dynamo.reset()
""")
    assert [span.value for span in done.journal.of("COMPILE")] in ([0, 0], [0, 0, 0, 0])
    assert int(done.journal.facts["compile/graph_break"]) == 2


def test_callbacks_of_the_programs_own_are_called_as_without(compiled) -> None:
    done = compiled("""
import torch._dynamo
def begin(*arguments): print("begin")
def end(*arguments): print("end")
torch._dynamo.callback_handler.register_start_callback(begin)
torch._dynamo.callback_handler.register_end_callback(end)
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
print(len(torch._dynamo.callback_handler.start_callbacks))
""")
    assert done.stdout.splitlines()[:-1] == ["begin", "end", "1"]


@NEEDS_REASONS
def test_marks_are_bounded_and_counted_on(compiled) -> None:
    done = compiled("""
import torch._dynamo
from perfwrap_recorder.probes.loop import compilation
compilation.MAX_MARKS = 2
@torch.compile(backend="eager", dynamic=False)
def double(x):
    return x * 2
for rows in range(3, 8): double(torch.ones(rows))
""")
    assert len(marks(done, "recompile")) == 2
    assert done.journal.facts["compile/recompile"] == "4"


def test_without_dynamo_nothing_is_imported_and_nothing_compiled(train) -> None:
    done = train(
        """
had = "torch._dynamo" in sys.modules
nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
print(had == ("torch._dynamo" in sys.modules))
""",
        fresh=True,
    )
    assert done.stdout == "True\n"
    assert not done.journal.of("COMPILE")
    assert "probe/compilation" in [found.name for found in done.journal.of("COVERAGE")]


def test_missing_callbacks_in_torch_are_reported(train) -> None:
    done = train("""
import torch._dynamo
from perfwrap_recorder.probes.loop import compilation
kept = sys.modules.pop("torch._dynamo.callback", None)
compilation.install_callbacks(torch._dynamo)
sys.modules["torch._dynamo.callback"] = kept
""")
    ends = [found for found in done.journal.of("COVERAGE") if found.name == "probe/compilation"]
    assert ends[-1].duration == 1


def test_what_dynamo_notes_is_not_kept_alive(compiled) -> None:
    compiled("""
import gc, weakref, torch._dynamo.utils as utils
def broken(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2
torch.compile(broken, backend="eager")(torch.ones(3))
torch.compile(lambda x: x - 1, backend="eager")(torch.ones(3))
noted = [weakref.ref(each) for each in utils.graph_break_reasons]
assert noted
utils.graph_break_reasons.clear()
# The graph itself refers to its reason, as in a bare run; the recorder's list must not.
holders = [type(holder) for each in noted if each() is not None for holder in gc.get_referrers(each())]
assert list not in holders, holders
""")
