"""Clipping gradients is recorded, with the line and what it asked for."""

from __future__ import annotations

SETUP = """
net = nn.Linear(2, 1)
net(torch.ones(1, 2)).sum().backward()
"""


def test_each_function_is_seen_under_each_of_its_names(train) -> None:
    done = train(
        SETUP
        + """
from torch.nn.utils import clip_grad_norm_
clip_grad_norm_(net.parameters(), 1.0)
torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
torch.nn.utils.clip_grad.clip_grad_value_(net.parameters(), 1.0)
"""
    )
    labels = [span.label for span in done.journal.of("CLIP")]
    assert labels == ["clip_grad_norm_", "clip_grad_norm_", "clip_grad_value_"]


def test_what_a_line_asks_for_is_said_once(train) -> None:
    done = train(
        SETUP
        + """
for _ in range(3):
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)  # FIRST
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, 1.0, False, False)  # SECOND
torch.nn.utils.clip_grad_value_(net.parameters(), 1.0, foreach=True)  # THIRD
"""
    )
    facts = {key: value for key, value in done.journal.facts.items() if key.startswith("clip/")}
    lines = {key: facts.pop(key).split("\x1f") for key in list(facts) if key.endswith("/line")}
    assert facts == {
        "clip/1/function": "clip_grad_norm_",
        "clip/1/norm_type": "2.0",
        "clip/1/error_if_nonfinite": "True",
        "clip/1/foreach": "None",
        "clip/2/function": "clip_grad_norm_",
        "clip/2/norm_type": "1.0",
        "clip/2/error_if_nonfinite": "False",
        "clip/2/foreach": "False",
        "clip/3/function": "clip_grad_value_",
        "clip/3/foreach": "True",
    }
    program = (done.run_dir / "program.py").read_text().splitlines()
    marks = [program[int(place[1]) - 1].rpartition("# ")[2] for place in lines.values()]
    assert marks == ["FIRST", "SECOND", "THIRD"]


def test_the_result_the_exception_and_the_warnings_line_are_as_without(train) -> None:
    done = train(
        SETUP
        + """
import warnings
print(round(torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).item(), 4), net.bias.grad.norm().item() < 1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.nn.utils.clip_grad_norm_((p for p in ()), 1.0)
print(*[warning.filename.endswith("program.py") for warning in caught])
net.weight.grad.fill_(float("nan"))
try: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
except RuntimeError as error: print(error.__context__, "non-finite" in str(error))
"""
    )
    assert done.stdout.splitlines()[0] == "1.7321 True"
    assert set(done.stdout.splitlines()[1].split()) <= {"True"}
    assert done.stdout.splitlines()[2] == "None True"
    assert len(done.journal.of("CLIP")) == 2


def test_whether_gradients_are_set_to_none_is_said_for_each_line(train) -> None:
    done = train(
        SETUP
        + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    optimizer.zero_grad(set_to_none=False)
    net.zero_grad(False)
optimizer.zero_grad(set_to_none=None)
"""
    )
    facts = done.journal.facts
    said = [
        (facts[f"zero_grad/{number}/function"], facts[f"zero_grad/{number}/set_to_none"])
        for number in range(1, 5)
    ]
    assert said == [
        ("Optimizer.zero_grad", "True"),
        ("Optimizer.zero_grad", "False"),
        ("Module.zero_grad", "False"),
        ("Optimizer.zero_grad", "None"),
    ]
    assert "zero_grad/5/line" not in facts
    assert len(done.journal.of("ZERO_GRAD")) == 7


def test_lines_without_end_are_bounded(train) -> None:
    done = train(
        SETUP
        + """
for number in range(200):
    exec(compile("\\n" * number + "net.zero_grad()", "generated.py", "exec"))
"""
    )
    lines = [key for key in done.journal.facts if key.startswith("zero_grad/") and key.endswith("/line")]
    assert len(lines) == 50
