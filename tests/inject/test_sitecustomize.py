"""What an interpreter looks like after the shim, and when the shim keeps out."""

from __future__ import annotations

import os
import sys

import pytest

SHOW = "import sys; print(sys.path); print(sorted(sys.modules))"
FLAGS = ([], ["-Werror"], ["-Xdev"], ["-bb"], ["-P"], ["-O"], ["-s"], ["-u", "-B"])


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_path_and_modules_are_those_of_a_bare_interpreter(run, interpreter, flags):
    if "-P" in flags and run.start(interpreter, "-P", "-c", "").returncode != 0:
        pytest.skip("-P came with Python 3.11")
    shown = run.same(interpreter, *flags, "-c", SHOW)
    assert shown.returncode == 0 and shown.stderr == ""
    assert run.events()[-1] == "start"


def test_the_finder_is_the_only_trace(run, interpreter):
    code = "import sys; print(len(sys.meta_path), sorted(n for n in vars(sys) if 'perfwrap' in n))"
    bare, injected = run.start_bare(interpreter, "-c", code), run.start(interpreter, "-c", code)
    assert injected.stdout == f"{int(bare.stdout.split()[0]) + 1} ['_perfwrap']\n"


def test_each_process_leaves_one_start_record(run, interpreter):
    run.start(interpreter, "-Wignore", "-c", "pass", "a\tb\nc", "d")
    (start,) = run.starts()
    assert start["event"] == "start" and start["vector"] == "sitecustomize"
    assert start["argv"].split("\x1f") == [interpreter, "-Wignore", "-c", "pass", "a b c", "d"]
    assert int(start["pid"]) != os.getpid() == int(start["ppid"])
    version = run.start_bare(interpreter, "-c", "import platform; print(platform.python_version())").stdout
    assert start["python"] == version.strip()


def test_a_long_command_line_is_cut(run):
    run.start(sys.executable, "-c", "pass", "x" * 50_000)
    (start,) = run.starts()
    assert 2_000 < len(start["argv"]) < 4_000


@pytest.mark.parametrize("switch", ["PERFWRAP_OFF", "PERFWRAP_DISABLE"])
def test_switched_off_it_does_nothing_but_chain(run, interpreter, write, switch):
    user = write("user/sitecustomize.py", "print('user')")
    code = SHOW + "; print(len(sys.meta_path), hasattr(sys, '_perfwrap'))"
    more = {switch: 1, "PYTHONPATH": f"{run.hook}:{user.parent}"}
    injected = run.start(interpreter, "-c", code, more=more)
    bare = run.start_bare(interpreter, "-c", code, more={**more, "PYTHONPATH": f":{user.parent}"})
    assert injected.stdout == bare.stdout and injected.stdout.startswith("user\n")
    assert run.starts() == []


def test_a_second_run_in_the_same_process_changes_nothing(run, interpreter):
    code = """
        import sys, os
        sys.path.insert(0, os.environ["PYTHONPATH"])
        before = sys.meta_path[:]
        import site; site.execsitecustomize(); site.execusercustomize()
        assert sys.meta_path == before
        assert os.environ["PYTHONPATH"] not in sys.path
        assert "sitecustomize" not in sys.modules
    """
    done = run.start(interpreter, "-c", "if 1:" + code)
    assert (done.returncode, done.stderr) == (0, "")
    assert run.events() == ["start"]


def test_without_site_nothing_of_ours_is_in_the_way(run, interpreter):
    importable = {path.stem for path in run.hook.iterdir() if path.stem.isidentifier()}
    assert importable <= {"sitecustomize", "usercustomize", "__pycache__"}
    run.same(interpreter, "-S", "-c", "import sys; print(sorted(sys.modules))")
    assert run.starts() == []


def test_without_site_the_folder_stays_on_the_path_and_that_is_all(run, interpreter):
    code = "import sys; print(sys.path)"
    bare, injected = run.start_bare(interpreter, "-S", "-c", code), run.start(interpreter, "-S", "-c", code)
    assert injected.stdout == bare.stdout.replace("['', ", f"['', '{run.hook}', ")


def test_our_files_are_compiled_once_where_no_byte_code_is_to_be_written(run, interpreter, write):
    write("work/part.py")
    script = write(
        "work/script.py", "import part, sys; print(sys.dont_write_bytecode, sys.flags.dont_write_bytecode)"
    )
    for _ in range(2):
        done = run.same(interpreter, script)
        assert (done.stdout, done.returncode) == ("True 1\n", 0)
    verbose = run.start(interpreter, "-v", "-c", "0").stderr
    assert f"matches {run.hook}/sitecustomize.py" in verbose
    assert not (script.parent / "__pycache__").exists()
    assert len(list(run.hook.rglob("*.pyc"))) == 1
    run.start(interpreter, "-c", "0", "--api-key=secret")
    redaction = run.start(interpreter, "-v", "-c", "0", "--api-key=secret").stderr
    assert "perfwrap_recorder/redaction.py" in redaction and len(list(run.hook.rglob("redaction.*.pyc"))) == 1


def test_no_byte_code_goes_where_the_user_keeps_his(run, interpreter, tmp_path):
    run.start(interpreter, "-c", "pass", more={"PYTHONPYCACHEPREFIX": tmp_path / "cache"})
    assert not (tmp_path / "cache").exists() and not list(run.hook.rglob("*.pyc"))


def test_late_site_main_under_dash_s_is_harmless(run, interpreter):
    code = "import site, sys; site.main(); import json; print(sorted(sys.modules)); print(sys.path)"
    run.same(interpreter, "-S", "-c", code)
    assert run.events() == ["start"]


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-sE"]], ids=" ".join)
def test_an_interpreter_that_ignores_the_environment_is_left_alone(run, interpreter, flags):
    run.same(interpreter, *flags, "-c", SHOW)
    assert run.starts() == []


def test_forking_without_torch_warns_of_nothing(run, interpreter):
    code = "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])"
    assert run.same(interpreter, "-Werror", "-c", code).stdout == "0\n"


def test_a_subinterpreter_leaves_no_second_record(run, interpreter):
    code = """
        import sys
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
            run = interpreters.exec
        else:
            import _xxsubinterpreters as interpreters
            run = interpreters.run_string
        one = interpreters.create()
        run(one, "import sys; assert not any('perfwrap' in p for p in sys.path)")
        interpreters.destroy(one)
        print("done")
    """
    if "3.12" not in interpreter and "3.13" not in interpreter:
        pytest.skip("before 3.12 a subinterpreter cannot tell that it is one")
    assert run.same(interpreter, "-c", "if 1:" + code).stdout == "done\n"
    assert run.events() == ["start"]
