"""However a Python is started, it is reached and behaves as bare."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

TELL = """
import sys
print(sys.argv, sys.path[0], __name__, __file__ if "__file__" in globals() else "")
print(sorted(sys.modules) == sorted(set(sys.modules)), sys.flags)
"""


def test_scripts_modules_and_packages(run, interpreter, write):
    script = write("script.py", TELL)
    write("package/__init__.py")
    write("package/__main__.py", TELL)
    for words in ([script, "-x"], ["-m", "package", "a"], ["-c", TELL], [script.parent / "package"]):
        done = run.same(interpreter, *words, cwd=script.parent)
        assert (done.returncode, done.stderr) == (0, "")
    assert run.events() == ["start"] * 4


@pytest.mark.parametrize("words", [["-"], []], ids=["dash", "nothing"])
def test_a_script_on_standard_input(run, interpreter, words):
    done = run.same(interpreter, *words, input=TELL)
    assert done.returncode == 0 and run.events() == ["start"]


def test_an_executable_script_found_through_env(run, interpreter, write):
    script = write("bin/tool", f"#!/usr/bin/env python3\n{TELL}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = f"{Path(interpreter).parent}:{script.parent}:{os.environ['PATH']}"
    done = run.same("tool", "word", more={"PATH": path})
    assert done.returncode == 0 and run.events() == ["start"]


def test_a_zip_application(run, interpreter, write, tmp_path):
    write("app/__main__.py", TELL)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz", interpreter)
    run.same(interpreter, tmp_path / "app.pyz")
    done = run.same(tmp_path / "app.pyz", "word")
    assert done.returncode == 0 and run.events() == ["start"] * 2


def test_a_shell_script_that_activates_an_environment(run, interpreter, write, tmp_path):
    subprocess.run([interpreter, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=240)
    script = write("job.sh", f"source {tmp_path}/venv/bin/activate\npython - <<'E'\n{TELL}\nE\n")
    done = run.same("bash", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert run.events() == ["start"]


def test_a_console_script_of_an_environment(run):
    pip = Path(sys.executable).parent / "pip"
    if not pip.exists():
        pytest.skip("this environment has no pip")
    done = run.same(pip, "--version")
    assert done.returncode == 0 and run.events() == ["start"]


def test_a_shim_of_pyenv(run):
    shim = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "shims" / "python3"
    if not shim.exists():
        pytest.skip("no pyenv on this machine")
    done = run.same(shim, "-c", TELL)
    assert done.returncode == 0 and run.events() == ["start"]


def test_execv_keeps_the_pid_and_leaves_a_second_record(run, interpreter):
    code = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])"
    assert run.same(interpreter, "-c", code).stdout == "1\n"
    first, second = run.starts()
    assert (first["pid"], first["start_ticks"]) == (second["pid"], second["start_ticks"])
    assert first["argv"] != second["argv"] and int(first["monotonic_ns"]) < int(second["monotonic_ns"])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_way_of_multiprocessing_works_without_torch(run, interpreter, write, method):
    script = write(
        "script.py",
        """
        import multiprocessing, sys
        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            with context.Pool(2) as pool:
                print(pool.map(abs, [-1, -2, -3]))
            process = context.Process(target=sys.exit, args=(3,))
            process.start()
            process.join()
            print(process.exitcode)
        """,
    )
    done = run.same(interpreter, "-Werror::DeprecationWarning", script, method)
    assert (done.stdout, done.stderr) == ("[1, 2, 3]\n3\n", "")
    # Spawned: resource tracker and three processes. The fork server's children fork without torch.
    expected = {"fork": {1}, "spawn": {4, 5}, "forkserver": {2, 3}}
    assert len(run.starts()) in expected[method] and set(run.events()) == {"start"}


@pytest.mark.parametrize("without", [["PYTHONDONTWRITEBYTECODE"], []], ids=["Python's", "ours"])
def test_many_first_starts_at_once_are_all_recorded(run, without):
    # All of them write the same file of byte code, by Python itself or by the shim.
    environment = {name: value for name, value in run.environment.items() if name not in without}
    command = [sys.executable, "-c", "import sys; print(sorted(n for n in sys.modules if 'perfwrap' in n))"]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(32)
    ]
    assert {process.communicate(timeout=240) for process in started} == {("[]\n", "")}
    assert run.events() == ["start"] * 32
    assert len({start["pid"] for start in run.starts()}) == 32
