"""The comparison of bare and wrapped runs finds what differs, and lets pass what differs between bare runs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"

LIST = """
[[script]]
name = "quiet"
command = "python -c 'import time, random; print(time.time_ns(), random.random())'"

[[script]]
name = "curious"
command = "python -c 'import os; print(os.environ[\\"PYTHONPATH\\"])'"
"""


@pytest.fixture(scope="module")
def comparing() -> Any:
    spec = importlib.util.spec_from_file_location("compare", SCRIPTS / "fidelity" / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["compare"] = module
    spec.loader.exec_module(module)
    return module


def test_a_number_that_differs_between_bare_runs_is_masked_in_every_line_of_its_kind(comparing: Any) -> None:
    bare = ["loss 0.5 took 12ms\nloss 0.4 took 13ms", "loss 0.5 took 12ms\nloss 0.4 took 14ms"]
    same = comparing.compare_text(bare, "loss 0.5 took 99ms\nloss 0.4 took 7ms")
    assert (same.status, same.compared, same.masked) == ("same", 2, 2)
    other = comparing.compare_text(bare, "loss 0.5 took 12ms\nloss 0.3 took 13ms")
    assert other.status == "different"
    assert other.where.startswith("line 2: ")
    assert "loss 0.3" in other.where


@pytest.mark.parametrize("wrapped", ["one", "one\ntwo\nthree", "one\ntoo", "two\none", "one\ntwo 3"])
def test_another_text_is_different(comparing: Any, wrapped: str) -> None:
    assert comparing.compare_text(["one\ntwo"] * 2, wrapped).status == "different"


def test_lines_of_several_processes_may_come_in_any_order(comparing: Any) -> None:
    assert comparing.compare_text(["a 1\nb 2", "b 2\na 1"], "b 2\na 1", ordered=False).status == "same"
    assert comparing.compare_text(["a 1\nb 2", "b 2\na 1"], "b 2\na 2", ordered=False).status == "different"
    assert comparing.compare_text(["a 1\nb 2", "b 2\na 1"], "b 2\na 1").status == "bare runs differ"


@pytest.mark.parametrize(
    ("line", "shape", "numbers"),
    [
        ("resnet18: 3 of 1e-5", "resnet18: # of #", ("3", "1e-5")),
        ("[12:01:59,003] 5.2s 40% 0x7ff0", "[#] #s #% #", ("12:01:59,003", "5.2", "40", "0x7ff0")),
        ("in tmpab_3f9x1 at -0.5", "in tmp at #", ("-0.5",)),
    ],
)
def test_numbers_are_distinguished_from_names(
    comparing: Any, line: str, shape: str, numbers: tuple[str, ...]
) -> None:
    assert comparing.split(line) == (shape, numbers)


def test_files_are_compared_bit_for_bit_unless_bare_runs_differ(comparing: Any) -> None:
    before = {"data": "d"}
    bare = [{"data": "d", "model": "m", "log": "1"}, {"data": "d", "model": "m", "log": "2"}]
    same = comparing.compare_files(before, bare, {"data": "d", "model": "m", "log": "3"})
    assert (same.status, same.compared, same.unsteady) == ("same", 1, ("log",))
    for wrapped in (
        {"data": "d", "model": "x", "log": "1"},
        {"data": "d", "log": "1"},
        {"data": "d", "model": "m"},
        {"data": "e", "model": "m", "log": "1"},
        {"data": "d", "model": "m", "log": "1", "more": "y"},
    ):
        assert comparing.compare_files(before, bare, wrapped).status == "different"


def test_files_of_tensorboard_are_known_by_their_place(comparing: Any, tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1795324689.host.19310.0").write_text("one")
    assert list(comparing.files_in(tmp_path)) == ["events.out.tfevents...."]


def test_of_saved_weights_the_tensors_are_compared_and_not_the_rest(comparing: Any, tmp_path: Path) -> None:
    digests = []
    for number, (tensor, pickled) in enumerate([(b"1", b"x"), (b"1", b"y"), (b"2", b"x")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with zipfile.ZipFile(folder / "model.pt", "w") as archive:
            archive.writestr("model/data.pkl", pickled)
            archive.writestr("model/data/0", tensor)
        digests.append(comparing.weights_in(folder, ["model.pt", "log.txt"]))
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
    assert list(digests[0]) == ["model.pt"]


def test_a_change_in_the_order_of_imports_is_found_and_the_recorders_own_modules_are_not(
    comparing: Any,
) -> None:
    def noted(*modules: str) -> Any:
        return comparing.Notes(
            [
                {
                    "rank": "",
                    "argv": ["a.py"],
                    "weights": "",
                    "modules": list(modules),
                    "steps": 0,
                    "random": {},
                }
            ]
        )

    bare = [noted("os", "json", "numpy", "torch")] * 2
    own = noted("json", "os", "perfwrap_recorder", "resource", "numpy", "<perfwrap:journal>", "torch")
    assert comparing.compare_imports(bare, own).status == "same"
    swapped = comparing.compare_imports(bare, noted("os", "json", "torch", "numpy"))
    assert swapped.where == "import 1: numpy became torch"
    more = comparing.compare_imports(bare, noted("os", "json", "decimal", "numpy", "torch"))
    assert more.where == "imported in one run only: decimal"


def test_workers_that_differ_in_their_random_numbers_alone_are_compared_in_any_order(comparing: Any) -> None:
    def noted(*states: str) -> Any:
        same = {"rank": "", "argv": ["a.py"], "weights": "", "modules": ["os"], "steps": 0}
        return comparing.Notes([{**same, "random": {"torch": state}} for state in states])

    bare = [noted("a", "b")] * 2
    assert comparing.compare_notes(bare, noted("b", "a"), "random").status == "same"
    assert comparing.compare_notes(bare, noted("b", "c"), "random").where == "torch's random state"


def test_a_script_that_shows_its_environment_is_found_different_and_one_that_does_not_is_the_same(
    tmp_path: Path,
) -> None:
    (tmp_path / "list.toml").write_text(LIST)
    command = [
        sys.executable,
        str(SCRIPTS / "fidelity" / "fidelity.py"),
        "--list",
        str(tmp_path / "list.toml"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1, ended.stderr
    quiet, curious = ended.stdout.splitlines()[2:]
    assert "different" not in quiet, ended.stderr
    assert [word.strip() for word in quiet.split("|")[2:5]] == ["same, 0", "same, 1 of 2", "–"]
    assert "different" in curious.split("|")[3]
    assert "curious, stdout: line 1: " in ended.stderr
