from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from perfwrap.edits.files.patch_text import patch, root_of
from perfwrap.edits.files.source_reader import read_source

CHANGES: Mapping[str, tuple[bytes, bytes]] = {
    "one.py": (b"a = 1\nb = 2\nc = 3\n", b"a = 1\nb = 20\nc = 3\n"),
    "crlf.py": (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nb = 3\r\nc = 4\r\n"),
    "mixed.py": (b"a = 1\r\nb = 2\nc = 3\r\n", b"a = 0\r\nb = 2\nc = 4\r\n"),
    "no_end.py": (b"a = 1\nb = 2", b"a = 1\nb = 3"),
    "new_end.py": (b"a = 1\nb = 2", b"a = 1\nb = 2\n"),
    "without_end.py": (b"a = 1\nb = 2\n", b"a = 1\nb = 2"),
    "empty.py": (b"", b"import gc\n"),
    "latin.py": (
        "# coding: latin-1\na = 'é'\n".encode("latin-1"),
        "# coding: latin-1\na = 'éé'\n".encode("latin-1"),
    ),
    "mark.py": (b"\xef\xbb\xbfa = 1\n", b"\xef\xbb\xbfa = 2\n"),
    "form\x0cfeed.py": (b"a = 1\n\x0cb = 2\x0b\n", b"a = 1\n\x0cb = 3\x0b\n"),
    "my file.py": (b"a = 1\n", b"a = 2\n"),
    "two words/ä ö.py": (b"a = 1\n", b"a = 2\n"),
    'quo"te\\tab\there.py': (b"a = 1\n", b"a = 2\n"),
    "far.py": (
        b"".join(b"x = %d\n" % i for i in range(90)),
        b"y\n" + b"".join(b"x = %d\n" % i for i in range(89)),
    ),
}


def write(root: Path, name: str, content: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def apply(tool: str, root: Path, diff: bytes) -> None:
    words = {"git": ["git", "apply", "--verbose"], "patch": ["patch", "-p1", "--binary"]}[tool]
    subprocess.run(words, cwd=root, input=diff, check=True, capture_output=True)


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize("tool", ["git", "patch"])
def test_both_programs_make_exactly_the_edited_files(tmp_path: Path, tool: str, is_repository: bool) -> None:
    if is_repository:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
    edited = {}
    for name, (old, new) in CHANGES.items():
        edited[read_source(write(tmp_path, f"src/{name}", old))] = new
    root = root_of(file.path for file in edited)
    assert root == (tmp_path if is_repository else tmp_path / "src")
    apply(tool, root, patch(edited))
    for name, (_, new) in CHANGES.items():
        assert (tmp_path / "src" / name).read_bytes() == new, name


@pytest.mark.parametrize("tool", ["git", "patch"])
def test_random_edits_apply(tmp_path: Path, tool: str) -> None:
    chance = random.Random(1)
    edited = {}
    for number in range(40):
        lines = [
            b"%d" % chance.randrange(4) + chance.choice([b"\n", b"\r\n"]) for _ in range(chance.randrange(60))
        ]
        new = list(lines)
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(new) + 1)
            new[at : at + chance.randrange(3)] = [b"new\n"] * chance.randrange(3)
        file = read_source(write(tmp_path, f"{number}.py", b"".join(lines)))
        edited[file] = b"".join(new).removesuffix(b"\n")
    diff = patch(edited)
    apply(tool, tmp_path, diff)
    for file, content in edited.items():
        # Git removes a file that becomes empty only if the diff says so.
        assert file.path.read_bytes() == content


def test_a_link_is_followed_to_the_file(tmp_path: Path) -> None:
    real = write(tmp_path, "real/train.py", b"a = 1\n")
    (tmp_path / "link.py").symlink_to(real)
    file = read_source(tmp_path / "link.py")
    assert b"+++ b/train.py\n" in patch({file: b"a = 2\n"})


def test_files_that_do_not_differ_are_left_out(tmp_path: Path) -> None:
    file = read_source(write(tmp_path, "train.py", b"a = 1\n"))
    assert patch({file: file.content}) == patch({}) == b""


def test_a_common_folder_above_all(tmp_path: Path) -> None:
    assert root_of([tmp_path / "a" / "x.py", tmp_path / "b" / "y.py"]) == tmp_path
    assert os.fspath(root_of([Path("/x.py")])) == "/"
