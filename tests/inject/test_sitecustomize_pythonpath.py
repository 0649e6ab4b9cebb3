"""For every PYTHONPATH, and after every change of it, sys.path is that of a bare interpreter."""

from __future__ import annotations

import pytest

SHOW = "import sys; print(sys.path)"
FORMS = (None, "", "a", ":a", "a:", "a::b", ":", "/not/there:a")


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_sys_path_is_that_of_a_bare_interpreter(make_run, interpreter, tmp_path, form):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    run = make_run(form)
    run.same(interpreter, "-c", SHOW, cwd=tmp_path)
    assert [start["vector"] for start in run.starts()] == ["sitecustomize"]


SLOPPY = ("$PYTHONPATH:{x}", "{x}:$PYTHONPATH", "$PYTHONPATH:{x}:{x}/y", "{x}:$PYTHONPATH:{x}/y")


@pytest.mark.parametrize("idiom", SLOPPY)
def test_a_script_that_lives_on_an_empty_element_still_does(run, interpreter, write, idiom):
    script = write("tools/train.py", "import sys, beside, extra; print(sys.path)")
    write("beside.py")
    extra = write("x/extra.py")
    (extra.parent / "y").mkdir()
    line = f'PYTHONPATH="{idiom.format(x=extra.parent)}" exec {interpreter} tools/train.py'
    done = run.same("bash", "-c", line, cwd=script.parent.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert [start["vector"] for start in run.starts()] == ["sitecustomize+cwd"]


def test_the_current_directory_is_not_put_there_twice(run, interpreter, tmp_path):
    # accelerate appends the current directory and drops empty elements.
    line = f'PYTHONPATH="$PYTHONPATH${{PYTHONPATH:+:}}$PWD" exec {interpreter} -c "{SHOW}"'
    run.same("bash", "-c", line, cwd=tmp_path)
    assert [start["vector"] for start in run.starts()] == ["sitecustomize"]


def test_an_element_added_to_one_that_was_set_brings_no_current_directory(make_run, interpreter, tmp_path):
    run = make_run(tmp_path / "mine")
    for idiom in SLOPPY:
        line = f'PYTHONPATH="{idiom.format(x=tmp_path)}" exec {interpreter} -c "{SHOW}"'
        run.same("bash", "-c", line, cwd="/")
    assert {start["vector"] for start in run.starts()} == {"sitecustomize"}


def test_a_current_directory_that_is_gone_stops_nothing(run, interpreter, tmp_path):
    gone = tmp_path / "gone"
    line = (
        f"mkdir {gone}; cd {gone}; rmdir {gone}; PYTHONPATH=$PYTHONPATH:/x exec {interpreter} -c 'print(1)'"
    )
    done = run.start("bash", "-c", line)
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert run.events() == ["start"]


def test_descendants_see_the_same_variable(run, interpreter):
    done = run.start(interpreter, "-c", "import os; print(os.environ['PYTHONPATH'])")
    assert done.stdout == f"{run.hook}\n"
