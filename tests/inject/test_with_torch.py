"""With the real torch: the import leaves no residue, and every process of a job says what it is."""

from __future__ import annotations

import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed here"),
]


def compare(run, code, *flags):
    """Run a program bare and injected; both must say the same."""
    return run.same(sys.executable, *flags, "-c", textwrap.dedent(code))


def test_loaders_sources_and_resources_are_as_bare(run):
    done = compare(
        run,
        """
        import copy, importlib.resources, importlib.util, inspect, pickle, pkgutil, sys
        assert importlib.util.find_spec("torch").name == "torch" and "torch" not in sys.modules
        import torch, torch.utils.data.dataloader as dataloader
        names = ["torch", "torch.utils.data.dataloader", "torch.nn.modules.module", "torch._C"]
        for module in map(sys.modules.get, names):
            spec = module.__spec__
            print(spec.name, type(spec.loader), sorted(vars(spec.loader)), module.__loader__ is spec.loader)
            print(spec.origin, copy.copy(spec) == spec)
        print(len(inspect.getsource(dataloader)), inspect.getsourcefile(dataloader))
        print((importlib.resources.files("torch") / "version.py").read_text())
        print(len(pkgutil.get_data("torch", "version.py")))
        print(sorted(found.name for found in pkgutil.iter_modules(torch.__path__)))
        print(pickle.loads(pickle.dumps(torch.nn.Linear)) is torch.nn.Linear)
        print([finder for finder in sys.path_hooks if "perfwrap" in repr(finder)], sys.path)
        """,
    )
    assert done.returncode == 0, done.stderr
    (journal,) = run.journals()
    assert not any(journal.notes.values()), journal.notes
    assert journal.facts["role"] == "main"


def test_a_lazily_imported_torch_is_recorded_when_it_is_used(run):
    done = compare(
        run,
        """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        torch = sys.modules["torch"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(torch)
        import json, decimal
        print("torch.nn" in sys.modules)
        print(torch.ones(2).sum().item(), "torch.nn" in sys.modules)
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (journal,) = run.journals()
    assert not [note for note in journal.notes.values() if note.startswith("failed")]


def test_no_garbage_is_collected_while_functions_are_instrumented(run):
    code = """
        import gc, sys
        gc.set_threshold(50, 1000, 1000)
        inside = set()
        def note(phase, info):
            frame = sys._getframe()
            while frame is not None:
                inside.add(frame.f_code.co_filename)
                frame = frame.f_back
        gc.callbacks.append(note)
        import torch
        print(gc.isenabled(), gc.get_threshold()[0], sorted(name for name in inside if "instrument" in name))
        """
    done = compare(run, code)
    assert done.stdout.split() == ["True", "50", "[]"]
    compare(
        run,
        code.replace("gc.set_threshold(50, 1000, 1000)", "gc.set_threshold(50, 1000, 1000); gc.disable()"),
    )


def test_a_part_of_torch_that_is_reloaded_is_as_bare(run):
    compare(run, "import importlib, torch.utils.data.dataloader as d; print(importlib.reload(d) is d)")


def test_a_debugger_stops_once_where_a_tensor_is_read(run, write):
    script = write(
        "debugged.py",
        """
import torch
def read(tensor):
    return tensor.item() + tensor.double().sum().item()
for _ in range(3):
    print(read(torch.ones(1)))
""",
    )
    commands = f"break {script}:4\n" + "continue\n" * 4
    done = run.same(sys.executable, "-m", "pdb", script, input=commands)
    assert done.stdout.count("-> return tensor.item()") == 3


def test_torch_imported_by_a_sitecustomize_before_us_is_recorded(run, write, tmp_path):
    write("site/sitecustomize.py", "import torch")
    run.start(sys.executable, "-c", "import torch", more={"PYTHONPATH": f"{run.hook}:{tmp_path}/site"})
    (journal,) = run.journals()
    assert not [note for note in journal.notes.values() if note.startswith("failed")]


def test_the_probes_import_nothing_while_torch_is_being_imported(run):
    trap = """
        import builtins, importlib
        from perfwrap_recorder import on_import

        def after(name, function, after=on_import.after):
            def trapped(module):
                def refuse(name, *arguments, **named):
                    raise AssertionError("imported %s in phase A" % name)
                kept = builtins.__import__, importlib.import_module
                builtins.__import__ = importlib.import_module = refuse
                try:
                    function(module)
                finally:
                    builtins.__import__, importlib.import_module = kept
            after(name, function if name == "torch" else trapped)
        on_import.after = after
    """
    package = run.data / "perfwrap_recorder" / "start.py"
    head, marker, tail = package.read_text().partition("from perfwrap_recorder import guard")
    package.write_text(head + textwrap.dedent(trap) + marker + tail)
    compare(run, "import torch; print(torch.__version__)")
    (journal,) = run.journals()
    assert not [note for note in journal.notes.values() if "phase A" in note]


def test_workers_that_persist_have_records_though_they_never_end_in_order(run, write):
    script = write(
        "train.py",
        """
        import os, torch
        from torch.utils.data import DataLoader

        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index): return torch.tensor(index)

        if __name__ == "__main__":
            loader = DataLoader(Data(), batch_size=2, num_workers=2, persistent_workers=True)
            for epoch in range(2):
                print(sorted(int(value) for batch in loader for value in batch))
            os._exit(0)
        """,
    )
    done = run.same(sys.executable, script)
    assert (done.returncode, done.stderr) == (0, "")
    (main,) = (start for start in run.starts() if start["event"] == "start")
    workers = [start for start in run.starts() if start["event"] == "fork"]
    assert [worker["ppid"] for worker in workers] == [main["pid"]] * 2
    roles = {str(journal.pid): journal.facts["role"] for journal in run.journals()}
    assert roles == {main["pid"]: "main", **{worker["pid"]: "worker" for worker in workers}}


TRAIN = """
import os
import sys
import torch.distributed as distributed
distributed.init_process_group("gloo")
value = __import__("torch").ones(1) * distributed.get_rank()
distributed.all_reduce(value)
sys.stdout.write("sum %s" % value.item() + chr(10))  # one write: the ranks share the pipe
distributed.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", ["torchrun", "module"])
def test_a_job_of_torchrun_has_two_ranks_and_an_agent(run, write, launcher):
    script = write("train.py", TRAIN)
    torchrun = Path(sys.executable).parent / "torchrun"
    if launcher == "torchrun" and not torchrun.exists():
        pytest.skip("this environment has no torchrun")
    words = [torchrun] if launcher == "torchrun" else [sys.executable, "-m", "torch.distributed.run"]
    done = run.start(*words, "--standalone", "--nproc-per-node", "2", script, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "sum 1.0\nsum 1.0\n"
    facts = [journal.facts for journal in run.journals()]
    assert sorted(fact["role"] for fact in facts) == ["agent", "main", "main"]
    ranks = sorted((fact["rank"], fact["local_rank"], fact["world_size"]) for fact in facts if "rank" in fact)
    assert ranks == [("0", "0", "2"), ("1", "1", "2")]


def test_a_profiler_sees_no_more_calls_in_the_programs_own_files(run, write):
    script = write(
        "profiled.py",
        """
import sys, torch
def read(tensor):
    return tensor.item() + tensor.double().sum().item() + bool(tensor)
calls = []
def note(frame, event, argument):
    if frame.f_code.co_filename == __file__: calls.append((frame.f_code.co_name, event, frame.f_lineno))
sys.setprofile(note)
for _ in range(3): read(torch.ones(1))
sys.setprofile(None)
print(len(calls), [each for each in calls if each[1] == "call"])
""",
    )
    assert run.same(sys.executable, script).stdout.count("'call'") == 3
