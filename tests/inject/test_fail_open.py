"""Whatever is wrong with perfwrap's own files, the program runs as if perfwrap were not there."""

from __future__ import annotations

import _imp
import marshal
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from perfwrap.launch import injection

PROGRAM = """
import os, sys, torch
print(torch.optim.__name__, len(sys.path))
sys.stdout.flush()
if os.fork() == 0:
    os._exit(0)
print(os.wait()[1])
"""


@pytest.fixture
def check(run, fake_torch):
    """Return a function that runs a program with the fake torch bare and injected, and compares the two."""

    def check(interpreter=sys.executable, code=PROGRAM, **options):
        words = [interpreter, "-Werror", "-c", textwrap.dedent(code)]
        bare = run.start_bare(*words, more={"PYTHONPATH": f":{fake_torch}"}, **options)
        done = run.start(*words, more={"PYTHONPATH": f"{run.hook}:{fake_torch}"}, **options)
        assert (done.stdout, done.stderr, done.returncode) == (bare.stdout, bare.stderr, bare.returncode)
        return done

    return check


PARTS = (
    "on_import",
    "own_modules",
    "start",
    "settings",
    "journal/journal",
    "guard",
    "roles",
    "probes/__init__",
)
DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] + b"\n def ("),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "binary": lambda path: path.write_bytes(b"\0\xff" * 1000),
    "raising": lambda path: path.write_text("raise RuntimeError('damaged')"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_recorder_leaves_the_program_alone_and_a_line(run, check, part, damage):
    damage(run.data / "perfwrap_recorder" / f"{part}.py")
    assert check().stdout.startswith("torch.optim")
    assert run.events()[:2] == ["start", "failed"]


def test_a_damaged_recorder_is_silent_on_every_python(run, check, interpreter):
    (run.data / "perfwrap_recorder" / "journal" / "journal.py").write_text("def (")
    check(interpreter)
    start, failed = run.starts()[:2]
    assert failed["event"] == "failed" and failed["argv"].startswith("SyntaxError")
    assert failed["pid"] == start["pid"]


@pytest.mark.parametrize("content", [b"", b"\0\xff" * 1000, marshal.dumps(7), None])
def test_without_whole_byte_code_the_recorder_is_compiled_from_its_sources(run, check, content):
    path = run.data / injection.CODE
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert check().stdout.startswith("torch.optim")
    assert "failed" not in run.events() and run.journals()


def test_lent_byte_code_is_used_if_it_is_of_the_source(run, fake_torch):
    def says_lent():
        done = run.start(sys.executable, "-c", PROGRAM, more={"PYTHONPATH": f"{run.hook}:{fake_torch}"})
        return done.stdout.startswith("lent ")

    probes = run.data / "perfwrap_recorder" / "probes" / "__init__.py"
    lent = marshal.dumps(compile("import os; os.write(1, b'lent '); PROBES = ()", "elsewhere", "exec"))
    name = probes.relative_to(run.data).as_posix()
    code = {name: (_imp.source_hash(0, probes.read_bytes()), lent)}
    (run.data / injection.CODE).write_bytes(marshal.dumps(code))
    assert says_lent()
    probes.write_text("PROBES = ()\n")
    assert not says_lent()


def test_damaged_settings_leave_the_program_alone(run, check):
    (run.data / "settings").write_text("budget_bytes=many\n")
    check()
    assert "failed" in run.events()


def test_a_run_folder_that_is_gone_leaves_the_program_alone(run, check):
    shutil.rmtree(run.folder.path)
    check()


def test_a_run_folder_that_goes_while_the_program_runs_leaves_it_alone(run, check, interpreter):
    code = f"""
        import os, shutil, sys
        if len(sys.meta_path) > 3 and hasattr(sys, "_perfwrap"):
            shutil.rmtree({str(run.folder.path)!r})
        {{}}
    """
    check(interpreter, textwrap.dedent(code).format(PROGRAM))
    assert not run.folder.path.exists()


def test_a_run_folder_that_goes_after_torch_leaves_the_program_alone(run, check, interpreter):
    code = f"""
        import os, shutil, sys, torch
        if "perfwrap_recorder" in sys.modules:
            shutil.rmtree({str(run.folder.path)!r})
            from perfwrap_recorder.journal import journal
            for number in range(50_000):
                journal.mark("still here", str(number))
        if os.fork() == 0:
            os._exit(0)
        print(os.wait()[1])
    """
    assert check(interpreter, code).stdout == "0\n"
    assert not run.folder.path.exists()


@pytest.mark.parametrize("gone", ["starts", "journal"])
def test_a_folder_that_cannot_be_written_leaves_the_program_alone(run, check, gone):
    shutil.rmtree(run.folder.path / gone)
    (run.folder.path / gone).write_text("a file stands here")
    check()


def test_a_read_only_run_folder_leaves_the_program_alone(run, check, fake_torch):
    if os.getuid() == 0:
        pytest.skip("no mode keeps root out; the test with another user covers this")
    for path in (run.folder.path, run.folder.starts, run.folder.journal):
        path.chmod(0o555)
    check()
    assert run.starts() == []


def test_another_user_who_may_read_but_not_write_is_left_alone(make_run, fake_torch):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("no Python that every user may run")
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        run = make_run(name=f"{open_to_all}/run")
        shutil.copytree(fake_torch, run.hook.parent / "fake")
        run.folder.path.chmod(0o755)
        options = {"user": 65534, "cwd": "/"}
        bare = run.start_bare(
            python, "-c", PROGRAM, more={"PYTHONPATH": f":{run.folder.path}/fake"}, **options
        )
        for mode in (0o755, 0o700):
            run.folder.path.chmod(mode)
            path = f"{run.hook}:{run.folder.path}/fake"
            done = run.start(python, "-c", PROGRAM, more={"PYTHONPATH": path}, **options)
            if mode == 0o755:
                assert (done.stdout, done.stderr, done.returncode) == (
                    bare.stdout,
                    bare.stderr,
                    bare.returncode,
                )
            else:  # the fake torch is out of reach too
                assert "No module named 'torch'" in done.stderr
        assert run.starts() == [] and run.journals() == []


def test_a_full_disk_leaves_the_program_alone(run, check, interpreter, tmp_path):
    target = tmp_path / "full"
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", target], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a small file system")
    try:
        for name in ("starts", "journal"):
            shutil.rmtree(run.folder.path / name)
            (target / name).mkdir()
            (run.folder.path / name).symlink_to(target / name)
        fill(target / "filler")
        check(interpreter)
        assert run.starts() == []
    finally:
        subprocess.run(["umount", target], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    try:
        with path.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 1024)
    except OSError:
        pass


@pytest.mark.parametrize("limit", [0, 100, 70_000])
@pytest.mark.parametrize("disposition", ["SIG_IGN", "SIG_DFL"])
def test_a_limit_to_the_size_of_files_leaves_the_program_alone(run, check, interpreter, limit, disposition):
    code = f"""
        import signal
        signal.signal(signal.SIGXFSZ, signal.{disposition})
        {{}}
        if "perfwrap_recorder.journal.journal" in sys.modules:
            for number in range(50_000):
                sys.modules["perfwrap_recorder.journal.journal"].mark("more", str(number))
    """

    def preexec():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    check(interpreter, textwrap.dedent(code).format(PROGRAM), preexec_fn=preexec)


def test_a_limit_to_open_files_leaves_the_program_alone(check, interpreter):
    code = """
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3,) * 2)
        import torch
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        print(os.fork() and os.wait()[1])
        print(len(held))
    """
    check(interpreter, code)


def test_closing_every_descriptor_leaves_both_alone(run, check, interpreter):
    code = """
        import os, sys, torch
        os.closerange(3, 256)
        descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
        if "perfwrap_recorder" in sys.modules:
            from perfwrap_recorder.journal import journal
            for number in range(5_000):
                journal.mark("after", str(number))
        print(descriptors)
    """
    check(interpreter, code)
    (journal,) = run.journals()
    assert "4999" in journal.texts.values()
