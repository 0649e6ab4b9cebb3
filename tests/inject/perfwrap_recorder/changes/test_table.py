"""The table of changes is complete, and its parts that need a GPU do what they say."""

from __future__ import annotations

import sys
import types
from importlib import import_module
from pathlib import Path

import pytest


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, repository: Path):
    """Load the recorder's modules in this process."""
    monkeypatch.syspath_prepend(str(repository / "inject"))
    for name in [name for name in sys.modules if name.startswith("perfwrap_recorder")]:
        monkeypatch.delitem(sys.modules, name)
    return lambda name: import_module("perfwrap_recorder." + name)


def test_every_file_is_listed_and_documented(load, repository: Path) -> None:
    table = load("changes").CHANGES
    folder = repository / "inject" / "perfwrap_recorder" / "changes"
    assert {row[2] for row in table} == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    documented = (repository / "docs" / "try.md").read_text()
    for name, kind, _ in table:
        rows = [row for row in documented.splitlines() if row.startswith((f"| `{name}`", f"| `{name}="))]
        assert len(rows) == 1, name
        assert rows[0].split(" | ")[1] == kind


def test_each_python_can_read_each_file(interpreter: str, repository: Path) -> None:
    import subprocess

    code = "import sys\nfor path in sys.argv[1:]: compile(open(path, encoding='utf-8').read(), path, 'exec')"
    files = map(str, (repository / "inject").rglob("*.py"))
    subprocess.run([interpreter, "-c", code, *files], check=True)


def test_deferred_values_are_those_of_copies_that_have_arrived(load) -> None:
    arrived: set[int] = set()

    def begin_copy(value: int):
        return (lambda: value in arrived), value

    place = load("changes.defer_item").Place(None, begin_copy)
    read = []

    def ask(value: int) -> float:
        return place.ask(value, lambda one: read.append(one) or float(one))

    assert ask(1) == 1.0  # a real one
    assert ask(2) == 1.0  # its copy begins
    assert ask(3) == 1.0  # which has not arrived
    arrived.add(2)
    assert ask(4) == 2.0
    arrived.add(4)
    assert ask(5) == 4.0
    assert read == [1, 2, 4]


def test_copies_are_made_asynchronous_only_where_the_program_leaves_it_open(load) -> None:
    module = load("changes.non_blocking")
    assert module.is_silent(("cuda",), {})
    assert not module.is_silent(("cuda", None, False), {})
    assert not module.is_silent(("cuda",), {"non_blocking": False})

    class Device:
        def __init__(self, kind: str) -> None:
            self.type = kind

    class Tensor:
        is_cuda = True

    torch = types.SimpleNamespace(device=Device, Tensor=Tensor)
    gpus = [
        (("cuda:1",), {}),
        ((0,), {}),
        ((Device("cuda"),), {}),
        ((), {"device": "cuda"}),
        ((Tensor(),), {}),
    ]
    assert all(module.is_gpu(torch, module.target_of(*call)) for call in gpus)
    others = [(("cpu",), {}), ((object(),), {}), ((), {"dtype": object()}), ((Device("cpu"),), {})]
    assert not any(module.is_gpu(torch, module.target_of(*call)) for call in others)


def test_the_allocators_variable_keeps_what_it_says(load, monkeypatch: pytest.MonkeyPatch) -> None:
    module, change = load("changes.expandable_segments"), load("experiments.change").Change
    for name in module.NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    module.prepare(change("expandable-segments"))
    import os

    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64,expandable_segments:True"
    again = change("expandable-segments")
    module.prepare(again)
    assert again.status == "refused"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    other = change("expandable-segments")
    module.prepare(other)
    assert other.status == "refused"
