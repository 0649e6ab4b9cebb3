"""Functions are called once each time that an awaited module runs, and the import looks like a bare one."""

from __future__ import annotations

import textwrap

import pytest

TORCH = "torch"
DATALOADER = "torch.utils.data.dataloader"


@pytest.fixture
def waiting(run, fake_torch):
    """Return a function that runs code with the fake torch, and a recorder that waits for three modules."""
    run.wait_for(TORCH, DATALOADER, "torch.optim")

    def start(interpreter, code, *flags, same=True, more=()):
        more = {"PYTHONPATH": f"{run.hook}:{fake_torch}", **dict(more)}
        done = run.start(interpreter, *flags, "-c", textwrap.dedent(code), more=more)
        if same:
            bare = run.start_bare(
                interpreter,
                *flags,
                "-c",
                textwrap.dedent(code),
                more={**more, "PYTHONPATH": f":{fake_torch}"},
            )
            assert (done.stdout, done.stderr, done.returncode) == (bare.stdout, bare.stderr, bare.returncode)
        return done

    start.run = run
    return start


ALL = ["started", f"ran {DATALOADER}", "ran torch.optim", "ran torch"]


@pytest.mark.parametrize("flags", [[], ["-Werror"], ["-bb"], ["-Xdev"]], ids=" ".join)
def test_an_import_fires_in_the_order_of_torchs_own_imports(waiting, interpreter, flags):
    done = waiting(interpreter, "import torch; print(torch.optim.__name__)", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert waiting.run.said() == ALL


def test_without_torch_the_recorder_is_never_loaded(waiting, interpreter):
    waiting(interpreter, "import json, sys; assert not [name for name in sys.modules if 'perfwrap' in name]")
    assert waiting.run.said() == []


def test_to_look_for_torch_imports_nothing_and_fires_nothing(waiting, interpreter):
    waiting(
        interpreter,
        """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        print(spec.name, type(spec.loader), spec.origin, spec.submodule_search_locations)
        assert "torch" not in sys.modules and "perfwrap_recorder" not in sys.modules
        """,
    )
    assert waiting.run.said() == []


def test_torch_that_is_not_there_stays_so(waiting, interpreter):
    code = """
        for name in ("torch", "torch.nn"):
            try: __import__(name)
            except ImportError as error: print(repr(error))
    """
    waiting(interpreter, code, more={"PYTHONPATH": str(waiting.run.hook)}, same=False)
    assert waiting.run.said() == []
    assert waiting.run.events() == ["start"]


def test_a_sitecustomize_that_imports_torch_is_seen(waiting, interpreter, write, fake_torch):
    write("fake/sitecustomize.py", "import torch")
    waiting(interpreter, "import sys; print('torch' in sys.modules)")
    assert waiting.run.said() == ALL


def test_torch_imported_before_us_is_found_late(waiting, interpreter, write, fake_torch, tmp_path):
    # What a .pth file does, which site runs before sitecustomize.
    write(
        "before/sitecustomize.py",
        "import sys, torch; sys.path.remove(__file__.rpartition('/')[0])\n"
        "del sys.modules['sitecustomize']; import sitecustomize",
    )
    more = {"PYTHONPATH": f"{tmp_path}/before:{waiting.run.hook}:{fake_torch}"}
    waiting(interpreter, "import torch", more=more, same=False)
    assert sorted(waiting.run.said()) == sorted(ALL)


def test_loaders_and_specs_are_as_before_after_the_import(waiting, interpreter):
    waiting(
        interpreter,
        """
        import copy, inspect, pickle, pkgutil, sys
        import torch.utils.data.dataloader as module, torch
        for one in (torch, module, torch.optim):
            spec = one.__spec__
            print(type(spec.loader), sorted(vars(spec.loader)), one.__loader__ is spec.loader, spec.origin)
            print(inspect.getsource(one), inspect.getsourcefile(one), copy.copy(spec) == spec)
            print(spec.loader.get_filename(one.__name__))
        print(pkgutil.get_data("torch", "optim.py"))
        print([found.name for found in pkgutil.iter_modules(torch.__path__)])
        print(pickle.loads(pickle.dumps(module.DataLoader)) is module.DataLoader)
        print([name for name in sys.path_hooks if "perfwrap" in repr(name)])
        """,
    )
    assert waiting.run.said() == ALL


def test_a_reload_fires_again(waiting, interpreter):
    waiting(interpreter, "import torch.optim, importlib; assert importlib.reload(torch.optim) is torch.optim")
    assert waiting.run.said() == [*ALL, "ran torch.optim"]


def test_deleting_and_importing_fires_again(waiting, interpreter):
    waiting(
        interpreter,
        """
        import sys, torch
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
            del sys.modules[name]
        import torch
        """,
    )
    assert waiting.run.said() == ALL + ALL[1:]


def test_a_lazy_module_fires_when_its_code_runs(waiting, interpreter):
    waiting(
        interpreter,
        """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules["torch"] = module
        spec.loader.exec_module(module)
        assert "torch.nn" not in sys.modules
        import json
        assert "torch.nn" not in sys.modules
        print(module.optim.__name__, type(module.__loader__), type(module.__spec__.loader))
        """,
    )
    assert waiting.run.said() == ALL


def test_a_module_run_by_hand_fires_once(waiting, interpreter):
    waiting(
        interpreter,
        """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        module = sys.modules["torch"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        """,
    )
    assert waiting.run.said() == ALL


FOREIGN = """
import sys
from importlib.machinery import PathFinder

class Loader:
    def __init__(self, loader): self.loader = loader
    def create_module(self, spec): return self.loader.create_module(spec)
    def exec_module(self, module):
        assert module.__spec__.loader is self, module.__spec__.loader
        print("foreign", module.__name__)
        self.loader.exec_module(module)

class Foreign:
    busy = False
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "torch.optim" or cls.busy: return None
        cls.busy = True
        try: spec = {search}
        finally: cls.busy = False
        spec.loader = Loader(spec.loader)
        return spec
"""
SEARCHES = ("PathFinder.find_spec(name, path, target)", "__import__('importlib.util').util.find_spec(name)")


@pytest.mark.parametrize("search", SEARCHES, ids=["direct", "through the whole list"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["before", "behind", "first after start"])
def test_another_tools_finder_and_ours_both_see_the_import_once(waiting, interpreter, search, place):
    early = "import importlib.util; importlib.util.find_spec('torch')\n" if place == 2 else ""
    code = (
        early + FOREIGN.format(search=search) + f"sys.meta_path.insert({place % 2}, Foreign)\nimport torch\n"
    )
    done = waiting(
        interpreter, code + "print(type(torch.optim.__loader__), type(torch.optim.__spec__.loader))"
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("foreign torch.optim\n")
    assert waiting.run.said() == ALL


def test_a_finder_that_goes_round_us_is_made_up_for(waiting, interpreter):
    code = FOREIGN.format(search=SEARCHES[0]) + "sys.meta_path.insert(0, Foreign)\nimport torch\n"
    waiting(interpreter, code)
    assert sorted(waiting.run.said()) == sorted(ALL)


def test_a_loader_that_only_knows_load_module_is_left_alone(waiting, interpreter):
    if "/3.12" in interpreter or "/3.13" in interpreter:
        pytest.skip("Python 3.12 gave up load_module")
    waiting(
        interpreter,
        """
        import sys, types
        class Old:
            def find_module(self, name, path=None):
                return self if name == "torch.optim" else None
            def load_module(self, name):
                module = sys.modules[name] = types.ModuleType(name)
                module.__loader__ = self
                return module
        if sys.version_info < (3, 12):
            sys.meta_path.insert(1, Old())
        import torch
        print(type(torch.optim).__name__)
        """,
        "-Wignore",
    )
    assert "ran torch" in waiting.run.said()


def test_a_package_that_waits_for_a_thread_which_imports_its_part_does_not_hang(waiting, interpreter, write):
    write(
        "fake/torch/__init__.py",
        """
        import importlib.util, threading
        found = []
        def look():
            found.append(importlib.util.find_spec("torch.optim") is not None)
        def find():
            for finder in __import__("sys").meta_path:
                spec = finder.find_spec("torch.optim", __path__, None)
                if spec: found.append(spec.name); break
        thread = threading.Thread(target=find)
        thread.start()
        thread.join(240)
        assert found, "the search in the other thread hangs"
        import torch.utils.data.dataloader, torch.optim
        """,
    )
    done = waiting(interpreter, "import torch; print(torch.found)")
    assert (done.stdout, done.returncode) == ("['torch.optim']\n", 0)


def test_two_threads_that_import_torch_at_once_start_one_recorder(waiting, interpreter):
    waiting(
        interpreter,
        """
        import importlib, importlib.util, threading
        barrier = threading.Barrier(8)
        def work(number):
            barrier.wait()
            importlib.util.find_spec("torch") if number % 2 else importlib.import_module("torch")
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        import torch
        """,
    )
    assert waiting.run.said() == ALL


BODIES = {
    "import error": "import not_there",
    "runtime error": "raise RuntimeError('broken')",
    "nested": "import torch.broken",
    "syntax": "def (",
    "name": "from torch.optim import not_there",
    "exit": "raise SystemExit(9)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("place", ["__init__", "optim"])
def test_the_traceback_of_a_failing_import_is_that_of_a_bare_one(waiting, interpreter, write, body, place):
    write("fake/torch/broken.py", "import os.not_there\n")
    write(f"fake/torch/{place}.py", ("import torch.optim\n" if place == "__init__" else "") + body + "\n")
    failed = waiting(interpreter, "import torch")
    assert failed.returncode != 0 and "perfwrap" not in failed.stderr


def test_a_failed_import_that_is_tried_again_fires_once_it_works(waiting, interpreter, write):
    write(
        "fake/torch/optim.py", "import os\nif not os.environ.pop('AGAIN', None): raise ImportError('first')\n"
    )
    waiting(
        interpreter,
        """
        import os
        try: import torch
        except ImportError as error: print(error)
        os.environ["AGAIN"] = "1"
        import torch
        """,
    )
    assert waiting.run.said() == ["started", f"ran {DATALOADER}", "ran torch.optim", "ran torch"]


def test_the_recorders_source_is_known_to_tracebacks_and_not_to_coverage(waiting, interpreter):
    done = waiting(
        interpreter,
        """
        import inspect, sys, torch
        from perfwrap_recorder import on_import, settings
        assert "def find_spec" in inspect.getsource(on_import.Finder.find_spec)
        print(inspect.getsource(settings.host_name).splitlines()[0])
        ours = [module for name, module in sys.modules.items() if name.startswith("perfwrap")]
        print({module.__spec__.origin for module in ours})
        print([module for module in ours if hasattr(module, "__file__")])
        """,
        same=False,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "def host_name() -> str:" and lines[2] == "[]"
    assert "<perfwrap:on_import>" in lines[1] and "<perfwrap:recorder>" in lines[1]
