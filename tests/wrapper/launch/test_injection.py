"""What stands in the directory on PYTHONPATH, and what becomes of PYTHONPATH itself."""

from __future__ import annotations

import _imp
import marshal
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.launch import injection
from perfwrap.launch.options import Trial
from perfwrap.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return run_folder.create(tmp_path / "run", ["train"])


def settings(folder: RunFolder) -> dict[str, str]:
    (path,) = folder.inject.glob("*/settings")
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return dict(line.partition("=")[::2] for line in lines)


@pytest.mark.parametrize(
    ("previous", "expected"),
    [
        (None, "{hook}"),
        ("", "{hook}"),
        ("a", "{hook}:a"),
        (":a", "{hook}::a"),
        ("a:", "{hook}:a:"),
        ("a::b", "{hook}:a::b"),
        (":", "{hook}::"),
    ],
)
def test_no_empty_element_comes_and_none_goes(folder, previous, expected):
    environment = {"PATH": "/bin"} if previous is None else {"PYTHONPATH": previous}
    kept = dict(environment)
    changes = injection.prepare(folder, environment)
    assert changes == {"PYTHONPATH": expected.format(hook=folder.inject)}
    assert environment == kept
    assert settings(folder)["original_pythonpath_empty"] == str(int(not previous))


def test_the_directory_holds_two_files_and_an_unguessable_directory(tmp_path):
    names = set()
    for number in range(3):
        folder = run_folder.create(tmp_path / str(number), ["train"])
        injection.prepare(folder, {})
        files = sorted(path.name for path in folder.inject.iterdir() if path.name[0] not in "_.")
        assert files[1:] == ["sitecustomize.py", "usercustomize.py"]
        assert len(files[0]) >= 16 and not files[0].isidentifier()
        assert not list((folder.inject / files[0]).glob("__init__.py"))
        names.add(files[0])
    assert len(names) == 3


def test_it_holds_all_of_the_recorder_and_nothing_else(folder, repository):
    injection.prepare(folder, {})
    (data,) = (path.parent for path in folder.inject.glob("*/settings"))
    source = repository / "inject" / "perfwrap_recorder"
    expected = {path.relative_to(source.parent) for path in source.rglob("*.py")}
    copied = {path.relative_to(data) for path in data.rglob("*") if path.is_file()}
    assert copied == expected | {Path("settings"), Path(injection.CODE)}


def test_byte_code_is_lent_if_python_keeps_it_and_may_keep_it(folder, tmp_path, monkeypatch):
    package = tmp_path / "perfwrap_recorder"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "part" / "one.py").write_text("x = 1\n")
    for number, (keeps, damaged, expected) in enumerate(
        ((False, False, 0), (True, False, 2), (False, False, 2), (False, True, 1), (True, False, 2))
    ):
        monkeypatch.setattr(sys, "dont_write_bytecode", not keeps)
        if damaged:
            (package / "part" / "one.py").write_text("x = 22\n")
        code = {}
        (tmp_path / str(number)).mkdir()
        injection._copy_sources(str(package), str(tmp_path / str(number) / "perfwrap_recorder"), code)
        assert len(code) == expected
    assert set(code) == {"perfwrap_recorder/__init__.py", "perfwrap_recorder/part/one.py"}
    hashed, found = code["perfwrap_recorder/part/one.py"]
    names = {}
    exec(marshal.loads(found), names)
    assert names["x"] == 22 and hashed == _imp.source_hash(0, b"x = 22\n")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_do_not_depend_on_the_umask(folder, umask):
    before = os.umask(umask)
    try:
        injection.prepare(folder, {})
    finally:
        os.umask(before)
    for path in [folder.inject, *folder.inject.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_settings_say_what_was_requested(folder):
    asked = {"nvtx": True, "budget_bytes": 12345, "sample_hz": 20, "max_overhead": 0.02, "ptracer_pid": 77}
    asked |= {"window": "5@100", "window_detail": ("shapes", "flops"), "window_ranks": "all"}
    asked["trial"] = Trial(("workers=8", "bf16"), 50, "20", 0.05, True, seconds=3.0)
    injection.prepare(folder, {}, host="node7", **asked)
    assert settings(folder) == {
        "run_dir": str(folder.path),
        "host": "node7",
        "budget_bytes": "12345",
        "nvtx": "1",
        "sample_hz": "20",
        "max_overhead": "0.02",
        "ptracer_pid": "77",
        "window": "5@100",
        "window_detail": "shapes,flops",
        "window_ranks": "all",
        "changes": "workers=8 bf16",
        "trial_steps": "50",
        "trial_warm_up": "20",
        "trial_precision": "0.05",
        "trial_writes": "allow",
        "trial_values": "",
        "trial_perturbation": "0",
        "trial_seconds": "3.0",
        "original_pythonpath_empty": "1",
        "watched": "0",
        "inspect": "0",
    }


@pytest.mark.parametrize("name", ["run", "with:colon"])
def test_the_monitors_process_is_named_once_it_is_known_and_nothing_else_changes(tmp_path, name):
    folder = run_folder.create(tmp_path / name, ["train"])
    injection.prepare(folder, {}, sample_hz=20)
    (settings,) = folder.inject.glob("*/settings")
    before = settings.read_text()
    injection.name_ptracer(folder, 4711)
    assert settings.read_text() == before.replace("ptracer_pid=0\n", "ptracer_pid=4711\n") != before


def test_the_shim_is_plain_ascii_and_complete(tmp_path):
    folder = run_folder.create(tmp_path / "ünï 'quoted' \udcff", ["train"])
    injection.prepare(folder, {"PYTHONPATH": "x"})
    for name in ("sitecustomize.py", "usercustomize.py"):
        text = (folder.inject / name).read_bytes().decode("ascii")
        names: dict[str, object] = {}
        constants = [line.strip() for line in text.splitlines() if line.startswith("    ") and " = " in line][
            :3
        ]
        exec("\n".join(constants), names)
        assert names["RUN_FOLDER"] == str(folder.path)
        assert names["WAS_UNSET"] is False
        assert (folder.inject / str(names["DATA"]) / "settings").is_file()


def start(changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Python with these changes to its environment."""
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **changes}
    code = "import sys; print([entry for entry in sys.path if 'inject' in entry or 'perfwrap-' in entry])"
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["a:b", "with space", "ünï", "q'uo\"te\\", "\udcff", "x" * 200])
def test_any_name_of_a_run_folder_works(tmp_path, name):
    folder = run_folder.create(tmp_path / name, ["train"])
    changes = injection.prepare(folder, {})
    done = start(changes)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    (log,) = folder.starts.iterdir()
    assert log.read_text().startswith("start\t")


def test_a_colon_in_the_path_takes_a_private_directory_elsewhere(tmp_path):
    folder = run_folder.create(tmp_path / "a:b", ["train"])
    hook = Path(injection.prepare(folder, {"PYTHONPATH": "x"})["PYTHONPATH"].split(":")[0])
    assert ":" not in str(hook) and hook.parent == Path(tempfile.gettempdir())
    assert folder.inject.is_symlink() and folder.inject.resolve() == hook.resolve()
    assert hook.stat().st_uid == os.getuid() and hook.stat().st_mode & 0o022 == 0
    assert settings(folder)["run_dir"] == str(folder.path)


def test_a_colon_everywhere_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "t:mp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t:mp"))
    folder = run_folder.create(tmp_path / "a:b", ["train"])
    with pytest.raises(PerfwrapError, match="PYTHONPATH") as caught:
        injection.prepare(folder, {})
    assert "--out" in caught.value.hint


def test_a_line_break_in_the_path_is_an_error_that_says_what_to_do(tmp_path):
    folder = run_folder.create(tmp_path / "a\nb", ["train"])
    with pytest.raises(PerfwrapError) as caught:
        injection.prepare(folder, {})
    assert "--out" in caught.value.hint


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(folder):
    folder.inject.write_text("in the way")
    with pytest.raises(OSError):
        injection.prepare(folder, {})


def test_it_works_where_the_run_folder_is_moved_or_mounted_elsewhere(folder, tmp_path):
    changes = injection.prepare(folder, {})
    folder.path.rename(tmp_path / "elsewhere")
    moved = {"PYTHONPATH": changes["PYTHONPATH"].replace(str(folder.path), str(tmp_path / "elsewhere"))}
    assert start(moved).stdout == "[]\n"
    (log,) = (tmp_path / "elsewhere" / "starts").iterdir()
    assert len(log.read_text().splitlines()) == 1
