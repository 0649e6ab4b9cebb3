from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.experiments.edits import Site, edit_for

SPELLINGS = {
    "nothing else": ("DataLoader(data)", "DataLoader(data, num_workers=8)"),
    "dotted": ("torch.utils.data.DataLoader(data)", "torch.utils.data.DataLoader(data, num_workers=8)"),
    "keyword": (
        "DataLoader(data, num_workers=0, shuffle=True)",
        "DataLoader(data, num_workers=8, shuffle=True)",
    ),
    "blanks": ("DataLoader( data,num_workers = 0 )", "DataLoader( data,num_workers = 8 )"),
    "by position": ("DataLoader(data, 32, True, None, None, 0)", "DataLoader(data, 32, True, None, None, 8)"),
    "fewer positions": ("DataLoader(data, 32, True)", "DataLoader(data, 32, True, num_workers=8)"),
    "brackets around": ("DataLoader((data))", "DataLoader((data), num_workers=8)"),
    "brackets around a value": ("DataLoader(data, num_workers=(0))", "DataLoader(data, num_workers=8)"),
    "a comma at the end": ("DataLoader(data,)", "DataLoader(data, num_workers=8,)"),
    "beyond ASCII": ("DataLoader(größe['ü'], shuffle=ß)", "DataLoader(größe['ü'], shuffle=ß, num_workers=8)"),
    "a string with brackets": ("DataLoader(read('a)(,'))", "DataLoader(read('a)(,'), num_workers=8)"),
    "calls inside": ("DataLoader(make(1), f(x=2))", "DataLoader(make(1), f(x=2), num_workers=8)"),
    "a subclass": ("MyDataLoader(data)", "MyDataLoader(data, num_workers=8)"),
    "inside another call": ("prepare(DataLoader(data), 3)", "prepare(DataLoader(data, num_workers=8), 3)"),
    "one argument a line": (
        "DataLoader(\n    data,\n    shuffle=True,\n)",
        "DataLoader(\n    data,\n    shuffle=True,\n    num_workers=8,\n)",
    ),
    "no comma at the end": (
        "DataLoader(\n    data,\n    shuffle=True\n)",
        "DataLoader(\n    data,\n    shuffle=True,\n    num_workers=8\n)",
    ),
    "a comment at the end": (
        "DataLoader(\n    data,  # ours, (all)\n)",
        "DataLoader(\n    data,  # ours, (all)\n    num_workers=8,\n)",
    ),
    "a comment before the comma": (
        "DataLoader(\n    (data  # ours, )\n    )\n    ,\n)",
        "DataLoader(\n    (data  # ours, )\n    ),\n    num_workers=8\n    ,\n)",
    ),
    "broken off": (
        "DataLoader(data,\n           shuffle=True)",
        "DataLoader(data,\n           shuffle=True,\n           num_workers=8)",
    ),
}


def apply(diff: str, folder: Path) -> None:
    """Apply a diff as a user would."""
    if shutil.which("patch"):
        subprocess.run(
            ["patch", "-p1", "--binary"], input=diff, cwd=folder, text=True, check=True, capture_output=True
        )
    else:
        subprocess.run(["git", "apply", "-"], input=diff, cwd=folder, text=True, check=True)


def edited(folder: Path, source: str, sites: dict[str, list[Site]]) -> str:
    """Return what applying the diff makes of a file."""
    (folder / "train.py").write_bytes(source.encode())
    edit = edit_for(sites, folder)
    assert not edit.snippets
    assert (folder / "train.py").read_bytes() == source.encode()
    apply(edit.diff, folder)
    return (folder / "train.py").read_bytes().decode()


def workers(folder: Path, line: int = 3) -> dict[str, list[Site]]:
    return {"workers=8": [Site(str(folder / "train.py"), line, "num_workers=0", "num_workers=8")]}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_diff_changes_the_argument_and_nothing_else(spelling: str, tmp_path: Path) -> None:
    before, after = SPELLINGS[spelling]
    frame = "import torch\n\nloader = {}  # kept\nmodel = None\n"
    assert edited(tmp_path, frame.format(before), workers(tmp_path)) == frame.format(after)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_line_ends_and_a_missing_one_stay_as_they_are(ends: str, tmp_path: Path) -> None:
    source = ends.join(["import torch", "", "loader = DataLoader(", "    data,", "    shuffle=True,", ")"])
    assert edited(tmp_path, source, workers(tmp_path)) == source.replace(
        "shuffle=True,", f"shuffle=True,{ends}    num_workers=8,"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("DataLoader(data, **options)", "not assigned"),
        ("DataLoader(*given)", "unpacked"),
        ("DataLoader(data, num_workers=args.workers)", "outside of this file"),
        ("DataLoader(data, num_workers=a if b else c)", "is computed"),
        ("make_loader(data)", "no call of a DataLoader"),
        ("DataLoader(a), DataLoader(b)", "several calls"),
        ("DataLoader(x for x in y)", "cannot parse"),
    ],
)
def test_a_call_that_is_ambiguous_or_unreadable_gets_a_snippet_with_its_line_and_a_reason(
    text: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(f"import torch\n\nloader = {text}\n")
    edit = edit_for(workers(tmp_path), tmp_path)
    assert not edit.diff
    (snippet,) = edit.snippets
    advice, said = snippet.splitlines()
    assert advice == "num_workers=8  # an argument of the DataLoader, train.py:3"
    assert said.startswith("# No diff: ") and reason in said


def test_the_call_is_found_from_any_of_its_lines(tmp_path: Path) -> None:
    source = "import torch\n\nloader = DataLoader(\n    data,\n    num_workers=0,\n)\n"
    for line in (3, 4, 5, 6):
        assert edited(tmp_path, source, workers(tmp_path, line)) == source.replace("=0", "=8")


def test_changes_that_go_together_make_one_diff_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("def loader(d):\n    return DataLoader(\n        d,\n    )\n")
    source = "import data\nopt = torch.optim.AdamW(m.parameters(), lr=1e-3)\nopt.zero_grad(False)\n"
    sites = {
        "workers=2": [Site(str(tmp_path / "data.py"), 2)],
        "persistent-workers": [Site(str(tmp_path / "data.py"), 2)],
        "fused-optimizer": [Site(str(tmp_path / "train.py"), 2, "fused=None", "foreach=True")],
        "set-to-none": [Site(str(tmp_path / "train.py"), 3)],
    }
    assert edited(tmp_path, source, sites).splitlines()[1:] == [
        "opt = torch.optim.AdamW(m.parameters(), lr=1e-3, foreach=True)",
        "opt.zero_grad()",
    ]
    call = ast.parse((tmp_path / "data.py").read_text()).body[0].body[0].value  # type: ignore[attr-defined]
    assert {keyword.arg for keyword in call.keywords} == {"num_workers", "persistent_workers"}


def test_an_option_of_the_command_line_that_is_given_is_not_changed_in_vain(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('-j', type=int, default=0)\n"
        "a = p.parse_args()\nx = DataLoader(d, num_workers=a.j)\n"
    )
    sites = {"workers=2": [Site(str(tmp_path / "train.py"), 5, "num_workers=0", "num_workers=2")]}
    assert "+p.add_argument('-j', type=int, default=2)" in edit_for(sites, tmp_path).diff
    given = edit_for(sites, tmp_path, ("python", "train.py", "-j", "0"))
    assert not given.diff and "The command sets -j" in given.text


def test_the_number_of_threads_and_a_copy_to_the_gpu_are_edited_where_they_are(tmp_path: Path) -> None:
    source = "import torch\ntorch.set_num_threads(8)\nx = x.to(device)\n"
    path = str(tmp_path / "train.py")
    sites = {
        "threads=1": [Site(path, 2, "set_num_threads(8)", "set_num_threads(1)")],
        "non-blocking": [Site(path, 3)],
    }
    assert edited(tmp_path, source, sites) == source.replace("(8)", "(1)").replace(
        "(device)", "(device, non_blocking=True)"
    )


def test_a_line_in_a_library_is_not_the_users_to_edit(tmp_path: Path) -> None:
    library = tmp_path / "lib/python3.11/site-packages/transformers/trainer.py"
    library.parent.mkdir(parents=True)
    library.write_text("x = DataLoader(data)\n")
    edit = edit_for({"workers=8": [Site(str(library), 1)]}, tmp_path)
    assert edit.text == "dataloader_num_workers=8  # an argument of TrainingArguments"


def test_a_change_without_a_line_and_a_ceiling_say_what_they_mean(tmp_path: Path) -> None:
    edit = edit_for({"compile=reduce-overhead": [], "cached-batch": []}, tmp_path)
    assert 'torch.compile(model, mode="reduce-overhead")' in edit.snippets[0]
    assert edit.snippets[1].startswith("No edit:")


ARGUMENTS = st.lists(
    st.sampled_from(
        ["shuffle=True", "drop_last=(not x)", "collate_fn=lambda b: (b, 'ü,)')", "batch_size=int('3')"]
    ),
    unique=True,
)


@given(ARGUMENTS, st.sampled_from([", ", ",\n        ", " ,  # (a, b\n    "]), st.booleans())
def test_whatever_the_call_looks_like_it_parses_and_keeps_its_arguments(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], between: str, comma: bool
) -> None:
    folder = tmp_path_factory.mktemp("edit")
    source = f"\n\nx = DataLoader({between.join(['(data)', *arguments])}{',' if comma else ''})\n"
    call = ast.parse(edited(folder, source, workers(folder))).body[0].value  # type: ignore[attr-defined]
    old = ast.parse(source).body[0].value  # type: ignore[attr-defined]
    assert [ast.dump(keyword) for keyword in call.keywords[:-1]] == [
        ast.dump(keyword) for keyword in old.keywords
    ]
    assert ast.unparse(call.keywords[-1]) == "num_workers=8"
