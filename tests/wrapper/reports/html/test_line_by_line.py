"""One step, line by line: source with its cost, modules as a tree, and stacks."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from perfwrap.diagnosis.model import Diagnosis, LineAccount, LineCost, ModuleCost
from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.line_account import PARTS
from perfwrap.reports import html
from perfwrap.reports.html.document import document
from perfwrap.reports.html.encoding import embedded
from perfwrap.reports.html.flames import step_flames
from perfwrap.reports.html.line_by_line import MAX_FILES, MAX_FOLDED, MAX_ROWS, line_by_line
from perfwrap.reports.html.module_tree import module_tree
from perfwrap.timeline.model import Timeline

MS = 1_000_000


@pytest.fixture
def page(diagnosis: Diagnosis, line_account: LineAccount) -> dict[str, Any]:
    return section(replace(diagnosis, line_account=line_account))


def section(diagnosis: Diagnosis) -> dict[str, Any]:
    found = line_by_line(diagnosis)
    assert found is not None
    json.loads(embedded(found))
    return found


def account(lines: list[LineCost], modules: list[ModuleCost] | None = None) -> LineAccount:
    step = sum(line.ns for line in lines) or 10.0 * MS
    return LineAccount(step, step, tuple(lines), tuple(modules or ()), {})


def cost(file: str | Path, line: int, function: str = "f", **parts: float) -> LineCost:
    return LineCost(Line(str(file), line, function), dict.fromkeys(PARTS, 0.0) | parts, 1)


def rows(file: dict[str, Any], folded: bool | None = None) -> dict[int, dict[str, Any]]:
    pieces = [piece for piece in file["pieces"] if "rows" in piece]
    wanted = [piece for piece in pieces if folded is None or bool(piece["folded"]) == folded]
    return {row["line"]: row for piece in wanted for row in piece["rows"]}


def test_without_an_account_there_is_no_section(diagnosis: Diagnosis) -> None:
    assert line_by_line(diagnosis) is None
    assert document(diagnosis, Timeline())["lines"] is None


def test_the_parts_of_the_step_sum_to_exactly_all_of_it(page: dict[str, Any]) -> None:
    assert sum(part["tenths"] for part in page["parts"]) == 1000
    assert [part["part"] for part in page["parts"]] == ["backward", "forward", "optimizer", "data", "python"]


def test_each_line_of_the_source_has_its_cost_beside_it(page: dict[str, Any], script: Path) -> None:
    (file,) = page["files"]
    assert (file["name"], file["share"], file["note"]) == ("train.py", "99 %", "")
    found = rows(file, folded=False)
    text = script.read_text().splitlines()
    assert all(row["text"] == text[number - 1] for number, row in found.items())
    assert found[7]["share"] == "60 %"
    assert found[7]["bar"] == [["forward", 25.0], ["backward", 75.0]]
    assert found[7]["note"] == "75 % of this line is its backward"
    assert found[7]["title"].startswith("backward 45 %, forward 15 %; 3 operations; mm ×2, add ×1")
    assert "share" not in found[6]
    assert "note" not in found[9]


def test_a_line_counts_once_whichever_function_of_it_called(page: dict[str, Any]) -> None:
    found = rows(page["files"][0])[11]
    assert found["share"] == "5.0 %"
    assert dict(found["bar"]) == pytest.approx({"forward": 100 * 2 / 60, "python": 100 * 3 / 60}, abs=0.01)


def test_what_is_in_no_shown_file_is_named(page: dict[str, Any]) -> None:
    assert page["rest"] == "no known line 1.0 %"


def test_only_the_surroundings_of_expensive_lines_of_a_long_file_are_shown(
    diagnosis: Diagnosis, tmp_path: Path
) -> None:
    lines = [f"x{number} = {number}" for number in range(1, 5_001)]
    lines[2999] = "def forward(x):"
    lines[3000:3099] = [f"    y{number} = {number}" for number in range(3001, 3100)]
    path = tmp_path / "long.py"
    path.write_text("\n".join(lines))
    costs = [
        cost(path, 1_000, forward=5.0 * MS),
        cost(path, 3_050, forward=4.0 * MS),
        cost(path, 3_090, python=0.9 * MS),
        cost(path, 4_000, python=0.01 * MS),
    ]
    (file,) = section(replace(diagnosis, line_account=account(costs)))["files"]
    shown = rows(file, folded=False)
    assert set(range(998, 1_003)) | {3_000} | set(range(3_048, 3_053)) <= set(shown)
    assert not set(shown) & {997, 1_003, 3_040, 4_000}
    assert shown[3_000]["note"] == "49 % in this function"
    folded = rows(file, folded=True)
    assert {3_020, 3_070} <= set(folded)
    assert len(shown) + len(folded) < 3 * MAX_FOLDED
    assert file["pieces"][0] == {"left_out": "997 lines"}


def test_many_expensive_lines_do_not_show_all_of_a_file(diagnosis: Diagnosis, tmp_path: Path) -> None:
    costs = []
    for number in range(2 * MAX_FILES):
        path = tmp_path / f"part{number}.py"
        path.write_text("\n".join(f"    x = {line}  # {'x' * 500}" for line in range(20_000)))
        costs += [cost(path, line, forward=1.0) for line in range(1, 20_000, 90)]
    found = section(replace(diagnosis, line_account=account(costs)))
    assert len(found["files"]) <= MAX_FILES
    assert all(len(rows(file)) <= MAX_ROWS + MAX_FOLDED for file in found["files"])
    assert len(embedded(found)) < 2 * MS


def test_a_file_that_cannot_be_read_shows_its_lines_without_text(diagnosis: Diagnosis) -> None:
    gone = account(
        [cost("/gone/model.py", 12, "Net.forward", forward=5.0), cost("/gone/model.py", 3, backward=5.0)]
    )
    (file,) = section(replace(diagnosis, line_account=gone))["files"]
    assert "could not be read" in file["note"]
    found = rows({"pieces": [piece | {"folded": ""} for piece in file["pieces"]]})
    assert {line: (row["text"], row["share"]) for line, row in found.items()} == {
        3: ("f", "50 %"),
        12: ("Net.forward", "50 %"),
    }


def test_a_file_that_changed_since_the_run_says_so(
    diagnosis: Diagnosis, line_account: LineAccount, script: Path
) -> None:
    os.utime(script, ns=(5 * 10**18, 5 * 10**18))
    (file,) = section(replace(diagnosis, line_account=line_account))["files"]
    assert "has changed since the run" in file["note"]
    script.write_text("short = 1\n")
    os.utime(script, ns=(10**18, 10**18))
    (file,) = section(replace(diagnosis, line_account=line_account))["files"]
    assert "has changed since the run" in file["note"]


def test_secrets_in_the_source_are_masked(diagnosis: Diagnosis, tmp_path: Path) -> None:
    path = tmp_path / "secret.py"
    path.write_text('login(token="hunter2")\nnet(x)\n')
    found = section(replace(diagnosis, line_account=account([cost(path, 2, forward=5.0)])))
    assert "hunter2" not in embedded(found)
    assert "login(token=" in str(rows(found["files"][0])[1]["text"])


def test_a_cell_of_a_notebook_shows_its_text(diagnosis: Diagnosis) -> None:
    run = diagnosis.run | {"cells": {"cell [3]": "%time\nloss = net(x)"}}
    lines = account([cost("cell [3]", 2, forward=5.0)])
    (file,) = section(replace(diagnosis, run=run, line_account=lines))["files"]
    assert rows(file)[2]["text"] == "loss = net(x)"


def test_every_part_of_a_line_has_a_colour() -> None:
    theme = (Path(html.__file__).parent / "assets" / "theme.js").read_text()
    colours = theme.partition("const PARTS = {")[2].partition("};")[0]
    assert {part for part in PARTS if f" {part}: '#" not in colours} == set()


def named(modules: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {module["name"]: module for module in modules}


def test_equal_layers_are_one_node_with_their_sum_and_each_of_them(page: dict[str, Any]) -> None:
    tree = page["modules"]
    (net,) = tree["roots"]
    assert (net["name"], net["share"], net["own"], tree["outside"]) == ("Net", "60 %", "0 %", "40 %")
    children = named(net["children"])
    assert list(children) == ["blocks.0–1", "head"]
    blocks = children["blocks.0–1"]
    assert (blocks["kind"], blocks["share"], blocks["own"]) == ("2 × Block", "54 %", "4.0 %")
    assert blocks["each"] == "27 % each"
    assert {layer["name"]: layer["share"] for layer in blocks["layers"]} == {"0": "32 %", "1": "22 %"}
    (linear,) = blocks["children"]
    assert (linear["name"], linear["kind"]) == ("linear", "Linear")
    assert (linear["forward"], linear["backward"]) == (11.0, 39.0)
    assert named(net["children"])["head"]["children"] == []


def test_layers_of_other_classes_and_with_gaps_stay_apart() -> None:
    modules = [
        ModuleCost(f"Net.{number}", kind, 1.0 * MS, 0.0, 1)
        for number, kind in ((0, "Conv"), (1, "ReLU"), (2, "Conv"), (3, "Conv"), (10, "Conv"))
    ]
    tree = module_tree(account([], modules))
    assert tree is not None
    assert set(named(tree["roots"][0]["children"])) == {"0", "1", "2–3", "10"}


def test_two_models_of_one_class_are_two_trees() -> None:
    modules = [
        ModuleCost("Sequential.0", "Linear", 3.0 * MS, 0.0, 1, 1),
        ModuleCost("Loss", "Loss", 1.0 * MS, 0.0, 1, 2),
        ModuleCost("Sequential.1", "Tanh", 2.0 * MS, 0.0, 1, 3),
    ]
    tree = module_tree(account([], modules))
    assert tree is not None
    assert [root["name"] for root in tree["roots"]] == ["Sequential #1.0", "Sequential #2.1", "Loss"]


def test_small_modules_are_counted_and_a_step_without_modules_has_no_tree() -> None:
    modules = [ModuleCost(f"Net.m{number}", "Tiny", 10.0, 0.0, 1) for number in range(5_000)]
    modules.append(ModuleCost("Net.large", "Linear", 5.0 * MS, 0.0, 1))
    tree = module_tree(account([], modules))
    assert tree is not None
    (root,) = tree["roots"]
    assert [child["name"] for child in root["children"]] == ["large", "5,000 smaller modules"]
    assert module_tree(account([])) is None


def test_the_stacks_sum_to_the_step_and_end_with_their_parts(line_account: LineAccount) -> None:
    flames = step_flames(line_account)
    nodes = list(zip(flames["parent"], flames["label"], flames["samples"], flames["kind"], strict=True))
    assert nodes[0] == (-1, "one step", 10 * MS, "all")
    for place, (_, label, samples, kind) in enumerate(nodes):
        inside = [each[2] for each in nodes if each[0] == place]
        assert sum(inside) == samples if inside else kind == "part"
        assert (kind == "part") == (label in PARTS)
    assert flames["amount"][0] == "10 ms"


def test_a_function_named_like_a_part_is_no_part() -> None:
    stacks = {("backward", "x", "forward"): 2.0, ("data", "forward"): 2.0}
    flames = step_flames(structs.replace(account([]), stacks=stacks))
    kinds = sorted(zip(flames["label"], flames["kind"], strict=True))
    assert ("backward", "line") in kinds
    assert ("data", "line") in kinds


def test_hostile_texts_stay_texts_and_are_cut(diagnosis: Diagnosis, attack: Any) -> None:
    line = cost(attack.long_path, 3, attack.text * 20, forward=5.0)
    line.kinds, line.shape, line.module = ((attack.text, 1),), attack.text, attack.text
    hostile = structs.replace(
        account([line], [ModuleCost(attack.text * 20, attack.text * 20, 5.0, 0.0, 1)]),
        stacks={(attack.text * 20, "forward"): 5.0},
    )
    text = embedded(section(replace(diagnosis, line_account=hostile)))
    assert "<" not in text
    assert attack.long_path not in text
    assert max(map(len, text.split('"'))) < 4_000
