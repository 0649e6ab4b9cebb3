"""Which edits a diagnosis leads to, and what several of them make of a file."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as msgspec_replace
from perfwrap.edits.outcome import Refusal
from perfwrap.fixing import candidates, edited_program
from perfwrap.fixing.candidates import Loader
from perfwrap.rules.model import Finding, Location, Option

PROGRAM = """import torch
from torch.utils.data import DataLoader


def main(data):
    loader = DataLoader(data, batch_size=4)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for batch in loader:
        optimizer.zero_grad(set_to_none=False)
        model(batch).sum().backward()
        optimizer.step()
"""
LOADER, OPTIMIZER, ZERO_GRAD, STEP = 6, 8, 10, 12


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def finding(rule: str, path: Path | str, line: int, *options: Option) -> Finding:
    return Finding(
        "A title.",
        0.5,
        (),
        options or (Option("Do it.", (0.5, 0.8)),),
        rule=rule,
        location=Location(str(path), line),
    )


def test_each_kind_of_finding_leads_to_its_edit(program: Path) -> None:
    change = "workers=2+threads=1"
    workers = Option("Pass num_workers=2, persistent_workers=True to it.", (0.4, 0.6), experiment=change)
    found, unedited = candidates.find(
        [
            finding("data_loader_single_process", program, LOADER, workers),
            finding("slow_optimizer", program, STEP),
            finding("zero_grad_memset", program, ZERO_GRAD),
            finding("slow_steps", program, STEP),
        ],
        [],
        ["python", "train.py"],
    )
    assert [(one.rule, one.edit, one.target.line) for one in found] == [
        ("data_loader_single_process", "loader_options", LOADER),
        ("slow_optimizer", "optimizer_options", OPTIMIZER),
        ("zero_grad_memset", "zero_grad_option", ZERO_GRAD),
    ]
    assert found[0].target.values == {"num_workers": 2, "persistent_workers": True}
    ((_, content),) = edited_program.make(found[:1]).items()
    assert "    torch.set_num_threads(1)\n    loader = DataLoader(" in content.decode()
    assert found[0].random_numbers and not found[1].random_numbers
    assert found[0].predicted == (0.4, 0.6)
    assert [(one.rule, one.reason) for one in unedited] == [
        ("slow_steps", "There is no edit for this finding.")
    ]


def test_a_finding_without_an_edit_says_what_it_would_gain_and_what_to_do(program: Path) -> None:
    findings = [
        finding("padded_batches", program, STEP, Option("Do it at once.", (0.58, 0.8))),
        finding("checkpoint_stall", program, STEP, Option("Save less often.", (0.99, 1.0))),
    ]
    found, unedited = candidates.find(findings, [], ["python", "train.py"])
    assert not found
    assert [one.sentence for one in unedited] == [
        "The finding padded_batches at train.py:12 (a step would take 0.58 of its time at best) has no automatic edit. "
        "By hand: Do it at once.",
        "The finding checkpoint_stall at train.py:12 has no automatic edit: Line 12 has no call of torch.save. "
        "Line 12 has no call of a function that saves. By hand: Save less often.",
    ]


@pytest.mark.parametrize(
    ("loader", "share", "expected"),
    [
        (Loader("", LOADER), 0.5, {"num_workers"}),
        (Loader("", LOADER, epochs=3), 0.5, {"num_workers", "persistent_workers"}),
        (Loader("", LOADER), 0.03, set()),
        (Loader("", LOADER, may_have_workers=False), 0.5, set()),
        (Loader("", LOADER + 1), 0.5, set()),
    ],
)
def test_workers_are_tried_where_none_are_advised(
    program: Path, loader: Loader, share: float, expected: set[str]
) -> None:
    option = Option("Make batches cheaper to load.", (0.4, 1.0), experiment="cached-batch")
    one = replace(finding("data_loader_single_process", program, LOADER, option), share=share)
    found, unedited = candidates.find([one], [msgspec_replace(loader, file=str(program))], [])
    assert [set(each.target.values) for each in found] == ([expected] if expected else [])
    assert len(unedited) == (not expected)
    if expected:
        assert 1 <= int(found[0].target.values["num_workers"]) <= candidates.MOST_TRIED


def test_a_save_gets_both_edits_to_be_measured(program: Path) -> None:
    program.write_text("import torch\nfor step in range(9):\n    torch.save(state, path)\n")
    found, _ = candidates.find([finding("checkpoint_stall", program, 3)], [], [])
    assert [one.edit for one in found] == ["background_save", "checkpoint_interval"]
    ((_, content),) = edited_program.make(found).items()
    assert (
        "    if (step + 1) % 5 == 0 or step + 1 == 9:\n        save_in_background(torch.save"
        in content.decode()
    )


def test_unused_gradients_without_a_line_lead_to_the_optimizer(program: Path) -> None:
    program.write_text(PROGRAM.replace("model.parameters()", "model.bias.parameters()"))
    nowhere = replace(finding("unused_gradients", program, 1), location=None)
    for words, loop in ((["python", str(program)], None), (["python", "-m", "a"], (str(program), STEP))):
        (found,), _ = candidates.find([nowhere], [], words, {}, loop)
        assert (found.edit, found.target.line) == ("frozen_parameters", OPTIMIZER)


def test_a_finding_elsewhere_edits_the_loader_that_it_is_about(program: Path) -> None:
    option = Option("Pass num_workers=2 to the DataLoader.", (0.4, 0.6), experiment="workers=2")
    slow = finding("slow_item", program, STEP, option)
    (found,), _ = candidates.find([slow], [Loader(str(program), LOADER)], [])
    assert found.target.line == LOADER


def test_the_values_of_the_run_tell_which_dictionary_it_used(program: Path) -> None:
    text = PROGRAM.replace("batch_size=4)", "**options)").replace(
        "    loader", "    options = {'num_workers': 1} if torch.cuda.is_available() else {}\n    loader"
    )
    program.write_text(text)
    option = Option("Pass num_workers=2 to the DataLoader.", (0.4, 0.6), experiment="workers=2")
    for seen, expected in (
        (0, "{'num_workers': 1} if torch.cuda.is_available() else {\"num_workers\": 2}"),
        (1, "{'num_workers': 2} if torch.cuda.is_available() else {}"),
    ):
        loader = Loader(str(program), LOADER + 1, {"num_workers": seen})
        (found,), _ = candidates.find([finding("slow_item", program, STEP, option)], [loader], [])
        ((_, content),) = edited_program.make([found]).items()
        assert content.decode() == text.replace(
            "{'num_workers': 1} if torch.cuda.is_available() else {}", expected
        )


@pytest.mark.parametrize("rule", ["unchanging_work", "repeated_work"])
def test_a_function_that_computes_the_same_again_keeps_its_result(rule: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\n\n\ndef mask(size):\n    return torch.ones(size).tril()\n\n\n"
        "for x in data:\n    print(x + mask(8))\n"
    )
    found, unedited = candidates.find([finding(rule, path, 9)], [], ["python", "train.py"])
    assert not unedited
    assert [(one.edit, one.target.line) for one in found] == [("kept_results", 9)]
    ((_, content),) = edited_program.make(found).items()
    assert b"    print(x + kept_mask(8))\n" in content


@pytest.mark.parametrize("is_papermill", [True, False])
def test_a_cell_of_a_notebook_is_edited_where_papermill_runs_it(is_papermill: bool, tmp_path: Path) -> None:
    cells = [
        "import torch\nfrom torch.utils.data import DataLoader",
        "loader = DataLoader([1])",
        "train(loader)",
    ]
    path = tmp_path / "a.ipynb"
    entries = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": [cell]} for cell in cells]
    content = {"cells": entries, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content, indent=1) + "\n")
    where = f"{path}, cell [2]"
    option = Option("Pass num_workers=2 to it.", (0.4, 0.6), experiment="workers=2")
    words = ["python", "-m", "papermill" if is_papermill else "nbconvert", str(path)]
    found, unedited = candidates.find([finding("slow_item", where, 1, option)], [], words, {where: cells[1]})
    if not is_papermill:
        assert not found and "Only papermill" in unedited[0].reason
        return
    (one,) = found
    assert (one.place.file, one.place.line) == (where, 1)
    assert one.sentence == "Add num_workers=2: the DataLoader at cell [2], line 1."
    ((_, edited),) = edited_program.make(found).items()
    assert edited.decode() == path.read_text().replace("DataLoader([1])", "DataLoader([1], num_workers=2)")


def test_too_many_threads_are_changed_where_the_program_sets_them(program: Path) -> None:
    program.write_text(PROGRAM.replace("def main", "torch.set_num_threads(8 * 2)\n\n\ndef main"))
    option = Option("Call torch.set_num_threads(2).", (0.4, 1.0), experiment="threads=2")
    over = Finding("Too many threads.", 0.5, (), (option,), rule="thread_oversubscription")
    (found,), _ = candidates.find([over], [], ["python", str(program)])
    ((_, content),) = edited_program.make([found]).items()
    assert "torch.set_num_threads(2)\n" in content.decode()
    assert candidates.find([over], [], ["python", "-m", "train"])[0] == []


def test_garbage_collection_without_a_line_is_edited_at_the_training_loop(program: Path) -> None:
    pause = Finding("Garbage collection.", 0.5, (), (Option("Freeze.", (0.5, 0.8)),), rule="gc_pause")
    found, _ = candidates.find([pause], [], [], {}, (str(program), STEP))
    assert [(one.edit, one.target.values) for one in found] == [
        ("frozen_garbage", {}),
        ("frozen_garbage", {"rare": True}),
    ]
    with pytest.raises(Refusal):
        edited_program.make(found)
    assert candidates.find([pause], [], [])[0] == []


def test_workers_that_only_live_longer_keep_their_items(program: Path) -> None:
    program.write_text(PROGRAM.replace("batch_size=4", "batch_size=4, num_workers=2"))
    longer = Option("Pass persistent_workers=True.", (0.5, 0.8), experiment="persistent-workers")
    more = Option("Pass num_workers=4.", (0.5, 0.8), experiment="workers=4")
    found, _ = candidates.find([finding("worker_restart", program, LOADER, longer, more)], [], [])
    assert [one.keeps_workers for one in found] == [True, False]


def test_ceilings_and_numerics_are_no_edits_of_the_loader(program: Path) -> None:
    for name in ("cached-batch", "bf16", "workers=2+bf16"):
        option = Option("Something.", (0.4, 0.6), experiment=name)
        assert candidates.find([finding("slow_item", program, LOADER, option)], [], [])[0] == []


def test_code_of_libraries_and_code_without_a_file_is_not_edited() -> None:
    for name, said in (
        (pytest.__file__, "belongs to a library"),
        (str(Path(sys.modules["json"].__file__ or "")), "belongs to a library"),
        ("<stdin>", "neither a Python file"),
        ("/gone/train.py", "neither a Python file"),
    ):
        with pytest.raises(Refusal, match=said):
            candidates.own_file(name)
        found, (unedited,) = candidates.find([finding("zero_grad_memset", name, 1)], [], [])
        assert found == []
        assert said in unedited.reason


def test_several_edits_of_one_file_find_their_lines(program: Path) -> None:
    option = Option("Pass num_workers=2 to it.", (0.4, 0.6), experiment="workers=2")
    found, _ = candidates.find(
        [
            finding("gc_pause", program, STEP),
            finding("data_loader_single_process", program, LOADER, option),
            finding("slow_optimizer", program, STEP),
            finding("zero_grad_memset", program, ZERO_GRAD),
        ],
        [],
        [],
    )
    found = [one for one in found if not one.target.values.get("rare")]
    assert len(found) == 4
    for order in (found, found[::-1]):
        ((file, content),) = edited_program.make(order).items()
        text = content.decode()
        assert file.content.decode() == PROGRAM
        for piece in ("num_workers=2", "fused=True", "optimizer.zero_grad()\n", "gc.freeze()"):
            assert piece in text
        compile(text, "train.py", "exec")


def test_the_same_edit_twice_is_refused(program: Path) -> None:
    (one,), _ = candidates.find([finding("zero_grad_memset", program, ZERO_GRAD)], [], [])
    with pytest.raises(Refusal):
        edited_program.make([one, one])


def test_all_optimizers_of_a_file_get_the_argument(program: Path) -> None:
    second = "    second = torch.optim.Adam(\n        model.parameters()\n    )\n"
    third = "    third = torch.optim.Adam([], fused=True)\n"
    lines = PROGRAM.splitlines(keepends=True)
    program.write_text("".join([*lines[:OPTIMIZER], second, third, *lines[OPTIMIZER:]]))
    (found,), _ = candidates.find([finding("slow_optimizer", program, STEP + 4)], [], [])
    ((_, content),) = edited_program.make([found]).items()
    assert content.decode().count("fused=True") == 3
    assert found.sentence.count("Pass fused=True") == 2


def test_reasons_of_edits_that_are_for_other_code_are_not_told(program: Path) -> None:
    _, (unedited,) = candidates.find([finding("python_overhead", program, STEP)], [], ["python", "train.py"])
    assert unedited.reason == candidates.NO_EDIT
    assert "has no automatic edit." in unedited.sentence
