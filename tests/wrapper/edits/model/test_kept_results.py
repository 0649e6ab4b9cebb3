from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from perfwrap.edits import edit
from perfwrap.edits.model.kept_results import CODE
from perfwrap.edits.outcome import Edited, Target

NAME = "kept_results"
GRAPH = """
import torch
from torch import nn


def normed(edges, nodes):
    degree = torch.zeros(nodes).scatter_add_(0, edges[1], torch.ones(edges.shape[1]))
    scale = degree.rsqrt()
    scale[torch.isinf(scale)] = 0.0
    return scale[edges[0]] * scale[edges[1]]


def forward(x, edges):
    weights = normed(edges, len(x))  # here
    return x[edges[0]] * weights[:, None]
"""
POSITIONS = """
import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x):
        codes = []
        for count in x.shape[2:]:
            codes.append(torch.arange(count, device=x.device) / self.width)
        return torch.cat(codes).sin()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = Positions(4)

    def forward(self, x):
        places = self.positions(x)  # here
        return x.flatten(2).sum(-1) + places.sum()


if __name__ == "__main__":
    model = Model()
"""


def test_calls_of_a_function_use_the_one_that_keeps_its_result(apply: Callable[..., str]) -> None:
    lines = apply(NAME, GRAPH).splitlines()
    assert [line for line in lines if line.startswith("-")] == [
        "-    weights = normed(edges, len(x))  # here"
    ]
    assert lines[-2:] == [
        "-    weights = normed(edges, len(x))  # here",
        "+    weights = kept_normed(edges, len(x))  # here",
    ]
    assert "+kept_normed = keep_result()(normed)" in lines


def test_a_module_that_uses_only_the_shape_gets_a_decorator(apply: Callable[..., str]) -> None:
    lines = apply(NAME, POSITIONS).splitlines()
    assert '+    @keep_result(shapes=["x"], attributes=["width"])' in lines
    assert not [line for line in lines if line.startswith("-")]


def test_functions_that_get_the_kept_result_keep_theirs_too(apply: Callable[..., str]) -> None:
    program = """
    import torch


    def sorted_edges(edges):
        return torch.unique(edges, dim=1)


    def degrees(edges, nodes):
        return torch.bincount(edges[1], minlength=nodes)


    def forward(x, edges):
        edges = sorted_edges(edges)  # here
        weights = degrees(edges, len(x))
        return x[edges[0]] * weights[edges[1], None]
    """
    lines = apply(NAME, program).splitlines()
    assert "+    edges = kept_sorted_edges(edges)  # here" in lines
    assert "+    weights = kept_degrees(edges, len(x))" in lines


def test_a_second_function_uses_the_code_that_is_there() -> None:
    text = GRAPH.lstrip("\n") + GRAPH.replace("normed", "other").partition("import nn\n")[2].replace(
        "here", "there"
    )
    for mark in ("# here", "# there"):
        line = next(number for number, each in enumerate(text.splitlines(), 1) if mark in each)
        found = edit(NAME, text, Target(line))
        assert isinstance(found, Edited), found
        text = found.text
    assert text.count("def keep_result(") == 1
    assert "kept_normed(edges" in text and "kept_other(edges" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("torch.ones(edges.shape[1])", "torch.rand(edges.shape[1])", "calls torch.rand()"),
        ("scale = degree.rsqrt()", "scale = nn.functional.dropout(degree)", "calls nn.functional.dropout()"),
        ("scale = degree.rsqrt()", "print(degree); scale = degree", "calls print()"),
        ("scale = degree.rsqrt()", "scale = other(degree)", "uses other, which may change"),
        ("scale = degree.rsqrt()", "scale = degree * FACTOR", "uses FACTOR, which may change"),
        ("scale = degree.rsqrt()", "scale = edges[0]", "may change what normed() gets"),
        ("scale = degree.rsqrt()", "edges.add_(1); scale = degree", "calls edges.add_()"),
        ("scale = degree.rsqrt()", "edges += 1; scale = degree", "may change what normed() gets"),
        ("scale = degree.rsqrt()", "scale = degree * edges.grad", "reads edges.grad, which may change"),
        ("scale = degree.rsqrt()", "scale = torch.relu(degree, inplace=True)", "calls torch.relu()"),
        ("scale = degree.rsqrt()", "scale = torch.backends.cuda.matmul.x", "reads torch.backends.cuda"),
        ("scale = degree.rsqrt()", "global last; last = scale = degree", "does more than to compute"),
        ("scale = degree.rsqrt()", "len = degree; scale = degree * len", "another meaning"),
        ("scale = degree.rsqrt()", "torch = degree; scale = torch.rsqrt()", "another meaning"),
        ("def normed(edges, nodes)", "@torch.no_grad()\ndef normed(edges, nodes)", "has a decorator"),
        ("def normed(edges, nodes)", "def normed(edges, nodes, *more)", "takes any arguments"),
        ("def normed(edges, nodes)", "def normed(edges, nodes, more=[])", "no literal"),
    ],
)
def test_a_function_that_may_compute_something_else_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in GRAPH
    assert reason in refuse(NAME, GRAPH.replace(old, new))


@pytest.mark.parametrize(
    "use",
    [
        "weights.mul_(2)",
        "weights += 1",
        "weights[0] = 1",
        "parts = weights.view(-1)[1:]\n    parts.zero_()",
        "both = [weights]\n    both[0].zero_()",
        "torch.add(x, x, out=weights)",
        "weights.requires_grad_()",
        "weights.requires_grad = True",
        "array = weights.numpy()",
        "torch.nn.init.zeros_(weights)",
        "scaled(weights)",
        "self.weights = weights\n    self.weights.clamp_(1)",
        "self.register_buffer('weights', weights)",
        "for part in weights.unbind():\n        part.zero_()",
    ],
)
def test_results_that_the_file_changes_are_refused(refuse: Callable[..., str], use: str) -> None:
    program = GRAPH.replace("    return x[edges", f"    {use}\n    return x[edges")
    program += "\n\ndef scaled(values):\n    values /= 2\n    return values\n"
    assert "may change the result of line" in refuse(NAME, program)


def test_results_for_other_files_are_refused(refuse: Callable[..., str]) -> None:
    program = GRAPH.replace("import torch\n", "import torch\nfrom layers import Layer\n").replace(
        "    return x[edges", "    Layer()(weights)\n    return x[edges"
    )
    assert "may change the result of line" in refuse(NAME, program)
    program = GRAPH.replace("    return x[edges", "    self.weights = weights\n    return x[edges")
    assert "Other files may get the result" in refuse(NAME, program)
    assert "Other files may get the result" in refuse(NAME, GRAPH + "    return weights\n")
    assert "Other files may use Positions" in refuse(NAME, POSITIONS.replace("__main__", "main"))


@pytest.mark.parametrize(
    "line",
    [
        "torch.compile(forward)",
        "x.data = 1",
        "x.data.add_(1)",
        "x.data[0] = 1",
        "checkpoint(forward, x)",
        "torch.jit.trace(forward, x)",
        "torch.func.grad(forward)",
    ],
)
def test_files_that_change_tensors_without_a_trace_are_refused(refuse: Callable[..., str], line: str) -> None:
    assert "a kept result may be a wrong one" in refuse(NAME, GRAPH + f"\n\n{line}\n")


def test_data_sets_and_checkpoints_are_no_reason_to_refuse(apply: Callable[..., str]) -> None:
    program = GRAPH + "\n\nfrom torch.utils.data import DataLoader\nsave_checkpoint(args.data == 'x')\n"
    assert "kept_normed" in apply(NAME, program)


def test_a_module_with_state_is_refused(refuse: Callable[..., str]) -> None:
    program = POSITIONS.replace("codes = []", "self.count = x.shape[0]\n        codes = []")
    assert "uses self for more than to read a value" in refuse(NAME, program)
    program = POSITIONS.replace("Positions(4)", "nn.Sequential(Positions(4))")
    assert "calls no function of this file" in refuse(NAME, program)


BEGIN = """
calls = []
@keep_result()
def double(x, factor=2):
    calls.append(1)
    return x * factor
x = torch.arange(3.0)
double(x)
"""
KEPT = {
    "pass": "1",
    "x.add_(1)": "2",
    "x.view(-1)[1:].add_(1)": "2",
    "x = x.clone()": "2",
    "torch.set_grad_enabled(False)": "2",
    "torch.set_default_dtype(torch.float64)": "2",
    "torch.autocast('cpu').__enter__()": "2",
    "double(x, 2.0)": "3",
    "double(x, True)": "3",
    "result = double(x); result.add_(1)": "2",
    "result = double(x); result.requires_grad_()": "2",
    "x.numpy()[0] = 7": "2",
}
"""What happens between two calls, and how often the function then ran."""
UNSEEN = (
    "torch.from_numpy(__import__('numpy').zeros(3))",
    "torch.zeros(3).share_memory_()",
    "torch.nn.Parameter(torch.zeros(3))",
    "torch.zeros(3, requires_grad=True)",
    "torch.inference_mode()(torch.zeros)(3)",
    "torch.eye(3).to_sparse()",
    "[torch.save(x, file := __import__('io').BytesIO()), file.seek(0), torch.load(file)][2]",
)
"""Tensors that may change without a trace."""
OTHERS = {
    "graph": """
@keep_result()
def exponential(x):
    calls.append(1)
    return x.exp()
leaf = torch.ones(3, requires_grad=True)
x = leaf + 0
calls.clear()
for step in range(3):
    first, second = exponential(x), exponential(x)
    assert first is second
    grads = torch.autograd.grad(first.sum() + (second * 2).sum(), x)
    assert torch.allclose(grads[0], 3 * x.exp())
print(len(calls))
""",
    "shape": """
class Grid:
    def __init__(self):
        self.step = 2
    @keep_result(shapes=["x"], attributes=["step"])
    def places(self, x):
        calls.append(1)
        return torch.arange(len(x)) * self.step
calls.clear()
grid = Grid()
first = grid.places(torch.zeros(3))
assert grid.places(torch.ones(3)) is first and len(calls) == 1
assert len(grid.places(torch.ones(4))) == 4
grid.step = 3
print(grid.places(torch.ones(4)).tolist(), len(calls))
""",
    "gone": """
for value in range(5):
    y = torch.full((3,), float(value))
    assert double(y)[0] == 2 * value
    del y
print(len(calls))
""",
    "traced": """
traced = torch.jit.trace(lambda x: double(x) + 1, x)
print(traced(torch.ones(3)).tolist())
""",
    "compiled": """
compiled = torch.compile(lambda x: double(x) + 1, backend="eager")
print([compiled(torch.full((3,), float(value)))[0].item() for value in (1, 1, 5)], compiled(x).tolist())
""",
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what short programs print that have the edit's functions: each runs in a fork of one process."""
    codes = {key: f"{BEGIN}\n{key}\nassert torch.equal(double(x), x * 2)\nprint(len(calls))" for key in KEPT}
    codes |= {
        key: f"{BEGIN}\ny = {key}\ncalls.clear()\ndouble(y); double(y)\nprint(len(calls))" for key in UNSEEN
    }
    codes |= {key: BEGIN + code for key, code in OTHERS.items()}
    folder = tmp_path_factory.mktemp("programs")
    program = folder / "program.py"
    program.write_text(
        f"{CODE}\ncodes = {codes!r}\n"
        "for number, code in enumerate(codes.values()):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        sys.stdout = open(str(number), 'w')\n"
        "        try:\n"
        "            exec(compile(code, 'code', 'exec'), globals())\n"
        "        except BaseException:\n"
        "            traceback.print_exc(file=sys.stdout)\n"
        "        sys.stdout.flush()\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n",
        encoding="utf-8",
    )
    program.write_text("import os, sys, traceback\n" + program.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {key: (folder / str(number)).read_text().strip() for number, key in enumerate(codes)}


@pytest.mark.parametrize("between", KEPT)
def test_a_result_is_kept_while_nothing_changes(printed: dict[str, str], between: str) -> None:
    assert printed[between] == KEPT[between]


@pytest.mark.parametrize("made", UNSEEN)
def test_tensors_that_change_without_a_trace_are_not_kept(printed: dict[str, str], made: str) -> None:
    assert printed[made] == "2"


def test_a_backward_pass_drops_a_result_with_a_graph(printed: dict[str, str]) -> None:
    assert printed["graph"] == "3"


def test_only_the_shape_of_an_input_may_count(printed: dict[str, str]) -> None:
    assert printed["shape"] == "[0, 3, 6, 9] 3"


def test_an_input_that_is_gone_keeps_nothing(printed: dict[str, str]) -> None:
    assert printed["gone"] == "6"


def test_compiled_and_traced_calls_are_not_kept(printed: dict[str, str]) -> None:
    assert printed["traced"] == "[3.0, 3.0, 3.0]"
    assert printed["compiled"] == "[3.0, 3.0, 11.0] [1.0, 3.0, 5.0]"


@pytest.mark.parametrize("program", [GRAPH, POSITIONS])
def test_the_edited_program_computes_the_same(program: str, tmp_path: Path) -> None:
    text = program.lstrip("\n")
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)
    found = edit(NAME, text, Target(line))
    assert isinstance(found, Edited)
    end = """
torch.manual_seed(1)
edges = torch.randint(5, (2, 9))
for step in range(3):
    x = torch.randn(5, 3, 4, 4)
    print((Model()(x) if "Model" in globals() else forward(x.flatten(1), edges)).double().sum().item())
"""
    outputs = []
    for name, each in (("old", text), ("new", found.text)):
        path = tmp_path / f"{name}.py"
        path.write_text(each + end, encoding="utf-8")
        outputs.append(subprocess.check_output([sys.executable, str(path)], text=True, timeout=120))
    assert outputs[0] == outputs[1] and len(outputs[0].splitlines()) == 3
