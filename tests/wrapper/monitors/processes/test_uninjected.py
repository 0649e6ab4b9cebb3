"""The reason why a Python was not reached is the right one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from perfwrap import run_folder
from perfwrap.launch import injection
from perfwrap.monitors.processes.uninjected import explain

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"


class Target:
    """Starts Pythons that wait, and explains them."""

    def __init__(self, folder: run_folder.RunFolder) -> None:
        self.folder = folder
        self.environment = {"PATH": os.environ["PATH"], "HOME": "/", **injection.prepare(folder, {})}
        self.hook = self.environment["PYTHONPATH"]
        self.started: list[subprocess.Popen[str]] = []

    def explain(self, *flags: str, python: str = sys.executable, **options: object) -> str | None:
        """Return the explanation for a Python that was started with these options."""
        return explain(self.start([python, *flags, "-c", WAIT], **options), self.hook)

    def start(self, command: list[str], **options: object) -> int:
        """Start a command that says when it is ready; return its pid."""
        settings = {
            "env": self.environment,
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "text": True,
        }
        process = subprocess.Popen(command, **{**settings, **options})
        self.started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process.pid

    def reached(self) -> bool:
        """Say whether any of them has written a start record."""
        return any(self.folder.starts.iterdir())

    def end(self) -> None:
        for process in self.started:
            process.communicate()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    target = Target(run_folder.create(tmp_path / "run", ["train"]))
    yield target
    target.end()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below the test's directory and return its path."""

    def write(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


OPTIONS = {
    ("-I",): "-I, which makes Python ignore PYTHONPATH",
    ("-E",): "-E, which makes Python ignore PYTHONPATH",
    ("-sE",): "-sE, which makes Python ignore PYTHONPATH",
    (
        "-u",
        "-Im",
    ): "-I, which makes Python ignore PYTHONPATH",
    ("-X", "dev", "-W", "ignore", "-BS"): "-BS, which keeps Python from importing site",
    ("-Xdev", "-Wignore", "-S"): "-S, which keeps Python from importing site",
}


@pytest.mark.parametrize(("flags", "reason"), OPTIONS.items(), ids=" ".join)
def test_an_option_of_python_is_named(target, write, flags, reason):
    command = [sys.executable, *flags, "-c", WAIT]
    if flags[-1].endswith("m"):
        command = [sys.executable, *flags, "timeit", "-n1", "-r1", "-s", WAIT]
    assert reason in explain(target.start(command), target.hook)
    assert not target.reached()


def test_an_option_of_the_script_is_not_taken_for_one_of_python(target, write):
    script = write("script.py", WAIT)
    pid = target.start([sys.executable, str(script), "-I", "-S"])
    assert "unknown reason" in explain(pid, target.hook)
    assert target.reached()


ENVIRONMENTS: dict[str, tuple[Callable[[dict[str, str]], dict[str, str]], str]] = {
    "cleared": (lambda old: {}, "had its environment cleared"),
    "unset": (lambda old: {"PATH": old["PATH"]}, "had PYTHONPATH unset"),
    "empty": (lambda old: {**old, "PYTHONPATH": ""}, "had PYTHONPATH unset"),
    "replaced": (lambda old: {**old, "PYTHONPATH": "/x:y"}, "had PYTHONPATH replaced by /x:y"),
    "off": (lambda old: {**old, "PERFWRAP_OFF": "1"}, "was excluded by PERFWRAP_OFF=1"),
    "disabled": (
        lambda old: {**old, "PERFWRAP_DISABLE": "1"},
        "was excluded by PERFWRAP_DISABLE=1",
    ),
}


@pytest.mark.parametrize(("change", "reason"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_a_changed_environment_is_named(target, change, reason):
    assert target.explain(env=change(target.environment)) == reason
    assert not target.reached()


def test_another_sitecustomize_that_comes_first_is_named(target, write, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = str(tmp_path / "venv" / "bin" / "python")
    shadow = write("shadow/sitecustomize.py")
    package = write("package/sitecustomize/__init__.py")
    for first, cwd, named in (
        (shadow.parent, "/", shadow),
        ("shadow", tmp_path, "shadow/sitecustomize.py"),
        ("", shadow.parent, "sitecustomize.py"),
        (package.parent.parent, "/", package),
        (f"/not/there:{shadow.parent}", "/", shadow),
    ):
        path = {**target.environment, "PYTHONPATH": f"{first}:{target.hook}"}
        assert f"shadowed by {named}, " in target.explain(python=python, env=path, cwd=cwd)
    assert not target.reached()


def test_a_sitecustomize_that_comes_later_is_not_blamed(target, write):
    later = write("later/sitecustomize.py")
    path = {**target.environment, "PYTHONPATH": f"{target.hook}:{later.parent}"}
    assert "shadowed" not in target.explain(env=path)
    assert target.reached()


def test_the_hook_is_known_by_another_name_too(target, tmp_path):
    (tmp_path / "link").symlink_to(target.hook)
    path = {**target.environment, "PYTHONPATH": str(tmp_path / "link")}
    assert "unknown reason" in target.explain(env=path)


def test_a_hook_that_is_gone_is_named(target):
    pid = target.start([sys.executable, "-c", WAIT])
    shutil.rmtree(target.hook)
    assert explain(pid, target.hook) == f"could not find {target.hook}, which no longer exists"


def test_a_job_that_was_attached_to_is_not_blamed(target):
    pid = target.start([sys.executable, "-c", WAIT])
    assert explain(pid, "") == "belongs to a job that perfwrap attached to, which records nothing inside"


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_old_python_is_named(target, version):
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} on this machine")
    code = "import sys; sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read()"
    reason = explain(target.start([str(found[0]), "-c", code]), target.hook)
    assert reason == f"is Python {version}, and perfwrap records 3.8 and later"
    assert not target.reached()


def test_pypy_is_named_and_other_programs_are_not_explained(target, tmp_path):
    program = tmp_path / "pypy3.10"
    shutil.copy("/bin/sh", program)
    lines = ["echo ready; read line"]
    assert "PyPy" in explain(target.start([str(program), "-c", *lines]), target.hook)
    assert explain(target.start(["/bin/sh", "-c", *lines]), target.hook) is None


def test_another_user_is_named(target):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("no Python that every user may run")
    reason = target.explain(python=python, user=65534, cwd="/")
    assert reason == f"runs as another user (65534), who may not read {target.hook}"


def test_a_process_that_is_gone_has_no_reason(target):
    pid = target.start([sys.executable, "-I", "-c", WAIT])
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert explain(pid, target.hook) is None  # a zombie
    target.end()
    assert explain(pid, target.hook) is None


def test_one_that_was_reached_has_no_reason_that_can_be_seen(target):
    assert "unknown reason" in target.explain()
    assert target.reached()
