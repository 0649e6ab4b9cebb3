"""The sitecustomize and usercustomize that the shim hides run as if it were not there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

SHOW = """
import sys
module = sys.modules.get("sitecustomize")
print(module and (module.__file__, module.__name__, module.__spec__.name, module.__package__))
print(sys.path, sorted(name for name in sys.modules if "custom" in name))
import sitecustomize
assert sitecustomize is module
"""


def start_both(make_run, interpreter, previous, *command, **options):
    """Run a command bare and injected with that PYTHONPATH, and return the injected result and its run."""
    run = make_run(previous)
    return run.same(interpreter, *command, **options), run


def test_a_program_without_sitecustomize_still_has_none(run, interpreter):
    failed = run.same(interpreter, "-c", "import sitecustomize")
    assert failed.returncode == 1 and "ModuleNotFoundError: No module named 'sitecustomize'" in failed.stderr


def test_a_file_runs_once_and_is_the_module(make_run, interpreter, write):
    user = write("user/sitecustomize.py", "print('once')")
    done, run = start_both(make_run, interpreter, user.parent, "-c", SHOW)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("once") == 1 and str(user) in done.stdout
    assert run.events() == ["start"]


def test_a_package_with_a_relative_import_runs(make_run, interpreter, write):
    write("user/sitecustomize/part.py", "print('part')")
    user = write("user/sitecustomize/__init__.py", "from . import part")
    done, _ = start_both(make_run, interpreter, user.parent.parent, "-c", SHOW)
    assert done.returncode == 0 and "part" in done.stdout


def test_a_module_in_a_zip_runs(make_run, interpreter, tmp_path):
    archive = tmp_path / "user.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("sitecustomize.py", "print('zipped')")
    done, _ = start_both(make_run, interpreter, archive, "-c", SHOW)
    assert done.returncode == 0 and "zipped" in done.stdout


def test_a_usercustomize_runs_too(make_run, interpreter, write):
    user = write("user/usercustomize.py", "print('user')")
    done, run = start_both(
        make_run, interpreter, user.parent, "-c", "import sys; print('usercustomize' in sys.modules)"
    )
    assert done.stdout == "user\nTrue\n"
    assert run.events() == ["start"]


def test_the_one_in_a_virtual_environment_runs(run, interpreter, tmp_path):
    subprocess.run([interpreter, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=240)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "sitecustomize.py").write_text("print('venv')")
    done = run.same(tmp_path / "venv" / "bin" / "python", "-c", SHOW)
    assert done.stdout.startswith("venv\n") and done.returncode == 0
    assert run.events() == ["start"]


@pytest.mark.skipif(
    not list(Path("/usr/lib").glob("python3*/sitecustomize.py")),
    reason="no system Python with a sitecustomize",
)
def test_the_one_of_the_distribution_runs(run):
    done = run.same("/usr/bin/python3", "-c", SHOW)
    assert done.returncode == 0 and "/usr/lib/python3" in done.stdout
    assert run.events() == ["start"]


@pytest.mark.parametrize(
    "statement", ["raise ValueError('mine')", "import not_there", "import os.not_there", "1/0"]
)
def test_what_it_raises_is_reported_as_without_us(make_run, interpreter, write, statement):
    user = write("user/sitecustomize.py", statement)
    done, run = start_both(make_run, interpreter, user.parent, "-c", "print('goes on')")
    assert done.stdout == "goes on\n" and "Error in sitecustomize" in done.stderr
    assert run.events() == ["start"]


@pytest.mark.parametrize("statement", ["raise SystemExit(7)", "raise KeyboardInterrupt"])
def test_what_ends_the_interpreter_ends_it(make_run, interpreter, write, statement):
    user = write("user/sitecustomize.py", statement)
    run = make_run(user.parent)
    bare, injected = run.start_bare(interpreter, "-c", "1"), run.start(interpreter, "-c", "1")
    assert injected.returncode == bare.returncode != 0
    assert injected.stdout == bare.stdout
    ours = [line for line in injected.stderr.splitlines() if "perfwrap" in line or str(run.hook) in line]
    assert len(ours) <= 2
    assert injected.stderr.splitlines()[-1:] == bare.stderr.splitlines()[-1:]


def test_another_tool_that_imports_ours_and_puts_its_name_back_is_served(run, interpreter, write):
    tool = write(
        "tool/sitecustomize.py",
        """
        import sys
        sys.path.remove(__file__.rpartition("/")[0])
        myself = sys.modules.pop("sitecustomize")
        import sitecustomize
        assert sys.modules.pop("sitecustomize") is sitecustomize
        sys.modules["sitecustomize"] = myself
        print("tool")
        """,
    )
    more = {"PYTHONPATH": f"{tool.parent}:{run.hook}"}
    done = run.start(interpreter, "-c", "import sitecustomize; print(sitecustomize.__file__)", more=more)
    assert (done.stdout, done.stderr) == (f"tool\n{tool}\n", "")
    assert run.events() == ["start"]


def test_another_tool_that_runs_ours_in_its_own_module_is_served(run, interpreter, write):
    # New Relic's way; an ImportError from it would end that tool, and site would not say a word.
    tool = write(
        "tool/sitecustomize.py",
        """
        import sys
        from importlib.machinery import PathFinder
        sys.path.remove(__file__.rpartition("/")[0])
        PathFinder.find_spec("sitecustomize", sys.path).loader.load_module("sitecustomize")
        print("tool")
        """,
    )
    more = {"PYTHONPATH": f"{tool.parent}:{run.hook}"}
    done = run.start(
        interpreter, "-Wignore", "-c", "print(hasattr(__import__('sys'), '_perfwrap'))", more=more
    )
    assert (done.stdout, done.stderr) == ("tool\nTrue\n", "")
    assert run.events() == ["start"]


def test_two_runs_in_one_another_are_one_each(make_run, interpreter, write):
    user = write("user/sitecustomize.py", "print('once')")
    outer = make_run(user.parent)
    inner = make_run(outer.environment["PYTHONPATH"])
    done = inner.start(interpreter, "-c", SHOW)
    assert (done.stderr, done.stdout) == ("", outer.start_bare(interpreter, "-c", SHOW).stdout)
    assert inner.events() == ["start"] and outer.events() == []


def test_shadowed_by_a_file_that_does_not_chain_the_second_name_is_found(run, interpreter, write):
    shadow = write("shadow/sitecustomize.py", "print('shadow')")
    more = {"PYTHONPATH": f"{shadow.parent}:{run.hook}"}
    code = "import sys; print(any(p == sys.argv[1] for p in sys.path), 'usercustomize' in sys.modules)"
    done = run.start(interpreter, "-c", code, run.hook, more=more)
    assert (done.stdout, done.stderr) == ("shadow\nFalse False\n", "")
    assert [start["vector"].partition("+")[0] for start in run.starts()] == ["usercustomize"]


def test_shadowed_in_a_virtual_environment_it_is_not_found(run, interpreter, write, tmp_path):
    subprocess.run([interpreter, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=240)
    shadow = write("shadow/sitecustomize.py", "print('shadow')")
    more = {"PYTHONPATH": f"{shadow.parent}:{run.hook}"}
    done = run.start(tmp_path / "venv" / "bin" / "python", "-c", "print('runs')", more=more)
    assert (done.stdout, done.stderr) == ("shadow\nruns\n", "")
    assert run.starts() == []


def test_a_virtual_environment_made_in_the_run_is_reached(run, interpreter, tmp_path):
    made = run.start(interpreter, "-m", "venv", "--without-pip", tmp_path / "venv")
    assert made.returncode == 0, made.stderr
    before = len(run.starts())
    run.same(tmp_path / "venv" / "bin" / "python", "-c", "import sys; print(sys.prefix, sys.path)")
    assert len(run.starts()) == before + 1


def test_the_directory_is_recognised_however_it_is_spelled(run, interpreter, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(run.hook)
    relative = os.path.relpath(run.hook, tmp_path)
    spellings = [f"{run.hook}/", f"{run.hook}/../{run.hook.name}", relative, link, f"{link}:{run.hook}"]
    bare = run.start_bare(interpreter, "-c", "import sys; print(sys.path)", cwd=tmp_path)
    for spelled in spellings:
        done = run.start(
            interpreter, "-c", "import sys; print(sys.path)", cwd=tmp_path, more={"PYTHONPATH": spelled}
        )
        assert (done.stdout, done.stderr) == (bare.stdout, ""), spelled
    assert run.events() == ["start"] * len(spellings)


def test_the_shim_parses_and_stays_out_of_older_pythons(make_run, old_interpreter, write):
    user = write("user/sitecustomize.py", "print('user')")
    code = "import sys; print(sys.path); print(sorted(sys.modules)); print(len(sys.meta_path)); import torch"
    fake = write("user/torch.py", "print('torch')")
    for previous in (None, user.parent):
        run = make_run(previous)
        done = run.same(old_interpreter, "-c", code, cwd=fake.parent)
        assert done.stdout.endswith("torch\n") and done.returncode == 0
        assert run.starts() == [] and not list(run.folder.journal.iterdir())
