"""Lines that write are recognised by their calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from perfwrap.measures.loop.source_calls import (
    begin_of_statement,
    file_calls,
    tensor_calls,
    writing_calls,
)


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        ("print(loss)", ("print",)),
        ("self.writer.add_scalar('loss', loss, step)", ("writer.add_scalar",)),
        ("for x in tqdm(loader): pass", ("tqdm",)),
        ("file.write(str(loss)); file.flush()", ("file.write", "file.flush")),
        ("os.fsync(file.fileno())", ("os.fsync",)),
        ("logger.info('loss %s', loss)", ("logger.info",)),
        ("wandb.log({'loss': loss})", ("wandb.log",)),
        ("json.dump(history, file)", ("json.dump",)),
        ("open(path, 'a')", ("open",)),
        ("open(path, mode='w')", ("open",)),
        ("open(path)", ()),
        ("open(path, 'rb')", ()),
        ("torch.log(loss)", ()),
        ("loss.log()", ()),
        ("state.update(loss=1)", ()),
        ("lines = (", ()),
    ],
)
def test_a_line_that_writes_is_recognised_by_its_calls(
    tmp_path: Path, line: str, calls: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").write_text(line + "\n")
    assert writing_calls({"cwd": str(tmp_path)}, "train.py", 1) == calls


def test_of_a_call_over_several_lines_each_counts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(\n    step,\n    loss,\n)\nstep()\n")
    found = [writing_calls({"cwd": str(tmp_path)}, "train.py", line) for line in (1, 3, 5)]
    assert found == [("print",), ("print",), ()]


def test_a_file_that_changed_after_the_run_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("print()\n")
    os.utime(path, ns=(2_000, 2_000))
    assert writing_calls({"end": {"wall_ns": 1_000}}, str(path), 1) == ()
    assert writing_calls({"end": {"wall_ns": 3_000}}, str(path), 1) == ("print",)


@pytest.mark.parametrize("name", ["missing.py", ".", "a\0b"])
def test_what_cannot_be_read_gives_nothing(tmp_path: Path, name: str) -> None:
    assert writing_calls({"cwd": str(tmp_path)}, name, 1) == ()


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        ("spectrum = torch.linalg.svdvals(w)", ("torch.linalg.svdvals",)),
        ("loss = F.mse_loss(a, torch.softmax(b, 0))", ("F.mse_loss", "torch.softmax")),
        ("loss = nn.functional.l1_loss(a, b)", ("nn.functional.l1_loss",)),
        ("x = torch.tensor(rows)", ()),
        ("with torch.no_grad(): total += 1", ()),
        ("torch.cuda.synchronize()", ()),
        ("total = sum(rows)", ()),
        ("x = get(0)(1)", ()),
    ],
)
def test_lines_that_compute_on_tensors_are_recognised_by_their_calls(
    tmp_path: Path, line: str, calls: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").write_text(f"first()\n{line}\nlast()\n")
    assert tensor_calls({"cwd": str(tmp_path)}, "train.py", 1, 3) == calls
    assert tensor_calls({"cwd": str(tmp_path)}, "train.py", 3, 9) == ()


def test_files_are_moved_behind_a_line_only_where_the_same_round_does_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "for step in range(9):\n"
        "    if step % 3 == 0:\n"
        "        torch.save(state, path)\n"
        "        os.replace(path, other)\n"
        "    name = name.replace('a', 'b')\n"
        "shutil.rmtree(folder)\n"
    )
    found = [file_calls({"cwd": str(tmp_path)}, "train.py", line) for line in (3, 5, 6)]
    assert found == [("os.replace",), (), ()]


@pytest.mark.parametrize(("line", "begin"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 5), (9, 9)])
def test_a_statement_over_several_lines_begins_at_its_first(tmp_path: Path, line: int, begin: int) -> None:
    (tmp_path / "train.py").write_text("for step in steps:\n    log(\n        step,\n    )\n    done()\n")
    assert begin_of_statement({"cwd": str(tmp_path)}, "train.py", line) == begin
    assert begin_of_statement({"cwd": str(tmp_path)}, "missing.py", line) == line
