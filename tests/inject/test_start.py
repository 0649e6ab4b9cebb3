"""What the recorder does in a process, from the first line of torch on, and in what it forks."""

from __future__ import annotations

import textwrap

import pytest
from perfwrap.journal_format import SPANS


@pytest.fixture
def start(run, fake_torch):
    """Return a function that runs a program with the fake torch on its path, bare and injected."""

    def start(interpreter, code, *flags, more=(), same=True):
        def options(path):
            return {"more": {"PYTHONPATH": path, **dict(more)}}

        words = [interpreter, *flags, "-c", textwrap.dedent(code)]
        done = run.start(*words, **options(f"{run.hook}:{fake_torch}"))
        if same:
            bare = run.start_bare(*words, **options(f":{fake_torch}"))
            assert (done.stdout, done.stderr, done.returncode) == (bare.stdout, bare.stderr, bare.returncode)
        return done

    start.run = run
    return start


def test_a_process_with_torch_has_a_journal_that_says_who_it_is(start, interpreter):
    variables = {"RANK": 1, "LOCAL_RANK": 0, "WORLD_SIZE": 2}
    start.run.use_probes()
    start(interpreter, "import torch", "-Werror", more=variables)
    (journal,) = start.run.journals()
    (record,) = start.run.starts()
    facts = journal.facts
    assert str(journal.pid) == record["pid"] and facts["ppid"] == record["ppid"]
    assert facts["argv"] == "\x1f".join([interpreter, "-Werror", "-c", "import torch"])
    assert (facts["role"], facts["python"]) == ("main", record["python"])
    assert (facts["rank"], facts["local_rank"], facts["world_size"]) == ("1", "0", "2")
    assert (SPANS["IMPORT"], "torch") in journal.spans
    assert {(SPANS["PERFWRAP"], "start"), (SPANS["PERFWRAP"], "install")} <= set(journal.spans)


def test_without_torch_there_is_no_journal(start, interpreter):
    start(interpreter, "import json, threading, subprocess")
    assert start.run.journals() == []


def test_an_import_that_was_over_before_is_not_timed(start, interpreter, write, tmp_path, fake_torch):
    write(
        "before/sitecustomize.py",
        """
        import sys, torch
        sys.path.remove(__file__.rpartition("/")[0])
        del sys.modules["sitecustomize"]
        import sitecustomize
        """,
    )
    start.run.use_probes(
        one="def install(torch):\n    from perfwrap_recorder.journal import journal\n    journal.mark('in')"
    )
    path = f"{tmp_path}/before:{start.run.hook}:{fake_torch}"
    start(interpreter, "import torch", more={"PYTHONPATH": path}, same=False)
    (journal,) = start.run.journals()
    assert "in" in journal.texts.values() and journal.facts["role"] == "main"
    assert SPANS["IMPORT"] not in {kind for kind, _ in journal.spans}


GOOD = """
from perfwrap_recorder.journal import journal

def loaded(module):
    journal.mark("loaded", module.__name__)

MODULES = {"torch.utils.data.dataloader": loaded}

def install(torch):
    journal.mark("installed", torch.optim.__name__)
"""
BROKEN = {
    "when it is read": "def (",
    "when it is imported": "raise RuntimeError('no')",
    "in a module's hook": "MODULES = {'torch.utils.data.dataloader': lambda module: 1 / 0}\n"
    "def install(torch): raise AssertionError('must not be called any more')",
    "at the end": "def install(torch): torch.not_there",
    "deep": "def install(torch): install(torch)",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_probe_that_raises_is_listed_and_harms_nothing(start, interpreter, source):
    start.run.use_probes(bad=source, good=GOOD)
    assert start(interpreter, "import torch; print('fine')", "-Werror").stdout == "fine\n"
    (journal,) = start.run.journals()
    assert list(journal.notes) == ["probe/bad"]
    assert journal.notes["probe/bad"].startswith("failed: ") and "Assertion" not in journal.notes["probe/bad"]
    texts = set(journal.texts.values())
    assert {"loaded", "torch.utils.data.dataloader", "installed", "torch.optim"} <= texts


ROLES = {
    "-m torch.distributed.run x": "agent",
    "-u -m accelerate.commands.launch": "agent",
    "-um torch.distributed.launch": "agent",
    "-X dev train.py torchrun": "main",
    "/somewhere/bin/torchrun --nproc-per-node 2 train.py": "agent",
    "-W ignore /env/bin/accelerate launch x.py": "agent",
    "/env/torch/_inductor/compile_worker/__main__.py --workers=2": "helper",
    "train.py": "main",
    "": "main",
    "-": "main",
}


def test_roles_are_found_from_the_command_line(start, interpreter):
    start.run.use_probes()
    code = f"""
        import torch
        from perfwrap_recorder import roles
        for line, role in {ROLES!r}.items():
            assert roles.find_role(["python", *line.split()]).name == role, (line, role)
        code = "from multiprocessing.forkserver import main; main(8, 9)"
        for before in ("", "import sys; "):  # as Python 3.14 has it
            assert roles.find_role(["python", "-s", "-c", before + code]).name == "helper"
        assert roles.find_ranks({{"OMPI_COMM_WORLD_RANK": "3"}}) == ("3", None, None)
        mpich = {{"PMI_RANK": "1", "MPI_LOCALRANKID": "0", "PMI_SIZE": "2"}}
        assert roles.find_ranks(mpich) == ("1", "0", "2")
        assert roles.find_ranks({{}}) == (None, None, None)
    """
    assert start(interpreter, code, same=False).stderr == ""


def test_in_an_agent_there_are_no_probes(start, interpreter, write, fake_torch):
    start.run.use_probes(good=GOOD)
    script = write("bin/torchrun", "import torch")
    done = start.run.start(interpreter, script, more={"PYTHONPATH": f"{start.run.hook}:{fake_torch}"})
    assert (done.returncode, done.stderr) == (0, "")
    (journal,) = start.run.journals()
    assert journal.facts["role"] == "agent" and "installed" not in journal.texts.values()


def test_an_agent_whose_forks_may_be_ranks_has_probes(start, interpreter, write, fake_torch):
    start.run.use_probes(good=GOOD)
    script = write("bin/torchrun", "import torch")
    words = (script, "--run-path", "--start-method", "fork", "train.py")
    done = start.run.start(interpreter, *words, more={"PYTHONPATH": f"{start.run.hook}:{fake_torch}"})
    assert (done.returncode, done.stderr) == (0, "")
    (journal,) = start.run.journals()
    assert journal.facts["role"] == "agent" and "installed" in journal.texts.values()


SAY = "from perfwrap_recorder.journal import journal; journal.mark('from', {who!r}); "
ENDINGS = {
    "exit": "sys.exit(5)",
    "_exit": "os._exit(5)",
    "end": "pass",
    "exception": "raise ValueError('in the child')",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_fork_has_a_record_and_a_journal_of_its_own(start, interpreter, ending):
    code = f"""
        import os, sys, torch
        say = "perfwrap_recorder" in sys.modules
        pid = os.fork()
        if pid == 0:
            if say:
                {SAY.format(who="child")}
            {ending}
        else:
            os.waitpid(pid, 0)
            if say:
                {SAY.format(who="parent")}
    """
    start.run.use_probes()
    start(interpreter, code)
    parent, child = start.run.starts()
    assert (parent["event"], child["event"]) == ("start", "fork")
    assert child["ppid"] == parent["pid"] != child["pid"]
    first, second = start.run.journals()
    assert [str(first.pid), str(second.pid)] == [parent["pid"], child["pid"]]
    assert "parent" in first.texts.values() and "child" not in first.texts.values()
    assert "child" in second.texts.values() and "parent" not in second.texts.values()
    assert second.facts["role"] == "main" and second.facts["ppid"] == parent["pid"]


def test_a_child_that_says_nothing_has_a_record_and_no_journal(start, interpreter):
    start.run.use_probes()
    start(interpreter, "import os, torch\nos.fork() or os._exit(0)\nos.wait()")
    assert start.run.events() == ["start", "fork"] and len(start.run.journals()) == 1


def test_a_pseudo_terminal_fork_is_a_fork_too(start, interpreter):
    start.run.use_probes()
    start(
        interpreter,
        "import os, pty, torch\npid, fd = pty.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
    )
    assert start.run.events() == ["start", "fork"]


def test_a_subprocess_is_not_a_fork(start, interpreter):
    start.run.use_probes()
    start(interpreter, "import subprocess, sys, torch\nsubprocess.run([sys.executable, '-c', 'pass'])")
    assert start.run.events() == ["start", "start"]


def test_a_child_forked_before_torch_gets_its_record_with_torch(start, interpreter):
    start.run.use_probes()
    start(interpreter, "import os\nif os.fork() == 0:\n import torch\n os._exit(0)\nos.wait()")
    (child,) = start.run.journals()
    parent, record = start.run.starts()
    assert (parent["event"], record["event"], record["pid"]) == ("start", "fork", str(child.pid))
    assert child.facts["role"] == "main"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_with_torch_leaves_one_record_each(start, interpreter, write, fake_torch, method):
    start.run.use_probes()
    script = write(
        "script.py",
        """
        import multiprocessing, sys, torch

        def work(number):
            import torch
            if "perfwrap_recorder" in sys.modules:
                from perfwrap_recorder.journal import journal
                journal.mark("worked", str(number))
            return number * 2

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            if sys.argv[1] == "forkserver":
                context.set_forkserver_preload(["torch"])
            pool = context.Pool(2)
            print(pool.map(work, range(4), chunksize=1))
            pool.close()
            pool.join()  # left by "with", a worker may be killed before it has come to life
            process = context.Process(target=work, args=(1,))
            process.start()
            process.join()
            print(process.exitcode)
        """,
    )
    words = [interpreter, script, method]
    bare = start.run.start_bare(*words, more={"PYTHONPATH": f":{fake_torch}"})
    done = start.run.start(*words, more={"PYTHONPATH": f"{start.run.hook}:{fake_torch}"})
    assert (
        (done.stdout, done.stderr, done.returncode) == (bare.stdout, "", 0) == (bare.stdout, bare.stderr, 0)
    )
    by_role = {journal.facts["role"] for journal in start.run.journals()}
    assert by_role == ({"main", "helper"} if method == "forkserver" else {"main"})
    recorded = [record["pid"] for record in start.run.starts()]
    assert len(set(recorded)) == len(recorded)
    forks = {"fork": 3, "spawn": 0, "forkserver": 3}
    assert start.run.events().count("fork") == forks[method]
    assert {str(journal.pid) for journal in start.run.journals()} <= set(recorded)


def test_a_worker_of_a_dataloader_is_recognised_by_who_forks_it(start, interpreter, write):
    start.run.use_probes()
    write(
        "fake/torch/utils/data/dataloader.py",
        """
        import os, sys
        def fork():
            pid = os.fork()
            if pid == 0:
                if "perfwrap_recorder" in sys.modules:
                    sys.modules["perfwrap_recorder.journal.journal"].mark("batch")
                os._exit(0)
            os.waitpid(pid, 0)
        """,
    )
    start(interpreter, "import torch.utils.data.dataloader as loader; loader.fork()")
    parent, worker = start.run.journals()
    assert (parent.facts["role"], worker.facts["role"]) == ("main", "worker")


def test_hooks_of_modules_import_nothing(start, interpreter):
    """The real probes' first phase, with every way to import trapped while a hook runs."""
    trap = """
        import builtins, importlib, sys
        from perfwrap_recorder import on_import
        def after(name, function, after=on_import.after):
            def trapped(module):
                def refuse(*arguments, **named):
                    raise AssertionError("an import in phase A")
                kept = builtins.__import__, importlib.import_module
                builtins.__import__ = importlib.import_module = refuse
                try:
                    function(module)
                finally:
                    builtins.__import__, importlib.import_module = kept
            after(name, trapped if name != "torch" else function)
        on_import.after = after
    """
    package = start.run.data / "perfwrap_recorder" / "start.py"
    head, marker, tail = package.read_text().partition("from perfwrap_recorder import guard")
    package.write_text(head + textwrap.dedent(trap) + marker + tail)
    start(interpreter, "import torch")
    (journal,) = start.run.journals()
    assert not [note for note in journal.notes.values() if "phase A" in note]
