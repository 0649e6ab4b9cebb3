"""A program runs with edited files as if the files were edited, and the files stay as they are."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from perfwrap.launch.options import EditedFile

MAIN = '''
"""The script."""
from __future__ import annotations
import inspect, os, pickle, sys, warnings
from pathlib import Path
import helper

STEPS = 1

class Kept:
    """A class of the script."""

def run():
    print("steps", STEPS, helper.VALUE, Path(__file__).with_name("data.txt").read_text())

if __name__ == "__main__":
    run()
    print(sys.argv, sys.path[0], __file__, __name__, __spec__, __package__, __doc__, __cached__, sorted(globals()))
    print(type(__loader__).__name__, __loader__.name, __loader__.path, __loader__.get_source(__loader__.name)[:60])
    print(pickle.loads(pickle.dumps(Kept())).__class__, inspect.getsource(run), inspect.getsource(helper))
    print(helper.__file__, helper.__cached__, helper.__spec__, helper.__loader__.get_data(helper.__file__))
    print(sys.path, sys.path_hooks, [path for path in sys.path_importer_cache if path.endswith(".py")], helper.where())
    warnings.warn("at this line")
'''
HELPER = """
VALUE = "old"
def where():
    import sys
    return sys._getframe().f_code.co_filename, sys._getframe().f_lineno
"""
ADDRESS = re.compile("0x[0-9a-f]+")
LONGER = "import math  # one line more\n"


class Program:
    """A program in a folder, with an edited version of some of its files."""

    def __init__(self, folder: Path, interpreter: str, make_edited_run) -> None:
        self.folder, self.interpreter, self.make_edited_run = folder, interpreter, make_edited_run
        self.edited: dict[Path, str] = {}
        folder.mkdir()

    def write(self, name: str, text: str, edited: str | None = None) -> Path:
        """Write a file; ``edited`` is the text that is to run."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        if edited is not None:
            self.edited[path] = textwrap.dedent(edited)
        return path

    def overlaid(self):
        """Return a run with the edited files over the program's."""
        overlay = [EditedFile(path, path.read_bytes(), text.encode()) for path, text in self.edited.items()]
        return self.make_edited_run(overlay)

    def same(
        self, *words: object, ran: int | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run the command with the overlay and with files that are really edited: both must say the same."""
        before = {path: path.read_bytes() for path in self.edited}
        listing = sorted(self.folder.rglob("*"))
        options.setdefault("cwd", self.folder)
        run = self.overlaid()
        done = run.start(self.interpreter, *words, **options)
        assert {path: path.read_bytes() for path in self.edited} == before
        assert sorted(self.folder.rglob("*")) == listing
        for path, text in self.edited.items():
            path.write_text(text)
        try:
            bare = run.start_bare(self.interpreter, *words, **options)
        finally:
            for path, content in before.items():
                path.write_bytes(content)
        assert ADDRESS.sub("", done.stdout) == ADDRESS.sub("", bare.stdout)
        assert done.stderr == bare.stderr
        assert done.returncode == bare.returncode
        log = (run.folder.path / "edited.log").read_text().splitlines()
        assert len({line.partition("\t")[2] for line in log}) == (len(self.edited) if ran is None else ran)
        assert not [start for start in run.starts() if start["event"] == "failed"]
        return done


@pytest.fixture
def program(tmp_path: Path, interpreter: str, make_edited_run) -> Program:
    """A script, a module beside it, and data."""
    program = Program(tmp_path / "program", interpreter, make_edited_run)
    program.write("data.txt", "the data")
    program.write("helper.py", HELPER, LONGER + HELPER.replace("old", "new"))
    program.write("train.py", MAIN, MAIN.replace("STEPS = 1", "STEPS = 2\nMORE = 3"))
    return program


def test_a_script_runs_as_if_it_were_edited(program: Program) -> None:
    done = program.same("train.py", "--steps", "2")
    assert done.stdout.startswith("steps 2 new the data") and done.returncode == 0
    assert "at this line" in done.stderr


@pytest.mark.parametrize("words", [["-m", "train"], ["-u", "-X", "utf8", "./train.py"]])
def test_other_ways_to_start_it(program: Program, words: list[str]) -> None:
    assert program.same(*words).stdout.startswith("steps 2 new")


def test_a_link_to_a_script(program: Program, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.py").symlink_to(program.folder / "train.py")
    program.write("data.txt", "")
    (tmp_path / "other" / "data.txt").write_text("its data")
    assert program.same("../other/link.py").stdout.startswith("steps 2 new its data")


def test_a_package_and_a_folder(program: Program) -> None:
    program.edited.clear()
    text = "from {0} import part\nprint(part.VALUE, __name__, __package__, __file__, __spec__)\n"
    program.write("package/__init__.py", "", "print('edited package')\n")
    program.write("package/__main__.py", text.format("."), text.format(".") + "print(2)\n")
    program.write("package/part.py", "VALUE = 1\n", "VALUE = 'edited'\n")
    assert "edited package\nedited __main__" in program.same("-m", "package").stdout
    program.edited.clear()
    program.write("folder/part.py", "VALUE = 1\n", "VALUE = 'edited'\n")
    program.write("folder/__main__.py", "import part\n", "import part\nprint(part.VALUE)\n")
    assert program.same("folder").stdout == "edited\n"


def test_byte_code_is_neither_read_nor_written(program: Program) -> None:
    run = program.overlaid()
    writes = {"PYTHONDONTWRITEBYTECODE": ""}
    options = {"cwd": program.folder, "more": writes}
    assert "steps 1 old" in run.start_bare(program.interpreter, "train.py", **options).stdout
    (cached,) = (program.folder / "__pycache__").iterdir()
    content = cached.read_bytes()
    assert "steps 2 new" in run.start(program.interpreter, "train.py", **options).stdout
    assert cached.read_bytes() == content
    cached.unlink()
    assert "steps 2 new" in run.start(program.interpreter, "train.py", **options).stdout
    assert not cached.exists()
    assert "steps 1 old" in run.start_bare(program.interpreter, "train.py", **options).stdout


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_of_multiprocessing_run_the_edited_script(program: Program, method: str) -> None:
    program.edited.clear()
    text = """
    import multiprocessing
    VALUE = 1
    class Item:
        pass
    def work(item, queue):
        queue.put((VALUE, type(item).__module__, __file__))
    if __name__ == "__main__":
        context = multiprocessing.get_context("METHOD")
        queue = context.Queue()
        process = context.Process(target=work, args=(Item(), queue))
        process.start()
        print(queue.get(), VALUE)
        process.join()
        print(process.exitcode)
    """.replace("METHOD", method)
    program.write("train.py", text, text.replace("VALUE = 1", "VALUE = 2"))
    assert program.same("train.py").stdout.startswith("(2, '__m")


@pytest.mark.parametrize(
    "end",
    [
        "def f():\n    raise ValueError('x')\nf()",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('words')",
        "import sys; sys.excepthook = lambda *found: print(found[:2], found[2].tb_lineno)\n1/0",
        "import atexit, sys; atexit.register(lambda: print('end', sys.last_value))\nraise KeyError(1) from OSError(2)",
        "import os; os._exit(4)",
        "import threading; threading.Thread(target=lambda: print('thread')).start()",
    ],
)
def test_it_ends_as_if_it_were_edited(program: Program, end: str) -> None:
    program.edited.clear()
    # As many lines as before: until Python 3.13 a traceback shows the lines of the file.
    program.write("train.py", f"A = 1\n{end}\n", f"A = 2\n{end}\n")
    program.same("train.py")


def test_an_interrupt_ends_it_by_that_signal(program: Program) -> None:
    program.edited.clear()
    program.write("train.py", "", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = program.overlaid().start(program.interpreter, "train.py", cwd=program.folder)
    assert done.returncode == -signal.SIGINT and done.stderr.endswith("KeyboardInterrupt\n")


def test_profilers_that_run_a_script_run_the_edited_one(program: Program) -> None:
    program.edited.clear()
    program.write("train.py", "print(1)\n", "print(2)\n")
    run = program.overlaid()
    done = run.start(program.interpreter, "-m", "cProfile", "train.py", cwd=program.folder)
    assert done.stdout.startswith("2\n")


def test_a_file_that_changed_since_runs_as_it_is(program: Program) -> None:
    run = program.overlaid()
    program.write("helper.py", HELPER.replace("old", "changed"))
    done = run.start(program.interpreter, "train.py", cwd=program.folder)
    assert done.stdout.startswith("steps 2 changed")
    assert [start["argv"] for start in run.starts() if start["event"] == "failed"] == [
        f"{program.folder / 'helper.py'} changed after it was edited"
    ]


def test_a_machine_without_these_files_notices_nothing(interpreter: str, make_edited_run) -> None:
    run = make_edited_run([EditedFile(Path("/none/x.py"), b"", b"1/0")])
    code = "import io, sys; print(io.open_code, 'perfwrap_recorder.overlay' in sys.modules, sys.path_hooks)"
    done = run.start(interpreter, "-c", code)
    assert done.stdout.startswith("<built-in function open_code>")


def test_without_edited_files_nothing_of_it_is_loaded(run, interpreter: str) -> None:
    code = "import sys; print([name for name in sys.modules if 'overlay' in name])"
    assert run.start(interpreter, "-c", code).stdout == "[]\n"


def test_source_in_another_encoding(program: Program) -> None:
    program.edited.clear()
    path = program.folder / "train.py"
    before = "# coding: latin-1\nprint(ascii('\xe4'), 1)\n".encode("latin-1")
    path.write_bytes(before)
    overlay = [EditedFile(path, before, before.replace(b"1)", b"2)"))]
    run = program.make_edited_run(overlay)
    assert run.start(program.interpreter, path).stdout == "'\\xe4' 2\n"


@pytest.mark.torch
def test_workers_and_ranks_run_the_edited_files(tmp_path: Path, make_edited_run) -> None:
    program = Program(tmp_path / "program", sys.executable, make_edited_run)
    text = """
    import os, sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    VALUE = 1
    class Items(Dataset):
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return VALUE
    if __name__ == "__main__":
        loader = DataLoader(Items(), num_workers=1, multiprocessing_context="spawn")
        sys.stdout.write(f"{os.environ['RANK']} {list(loader)}\\n")
    """
    program.write("train.py", text, text.replace("VALUE = 1", "VALUE = 7"))
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = program.overlaid().start(sys.executable, *words, cwd=program.folder)
    assert sorted(done.stdout.splitlines()) == [f"{rank} [tensor([7]), tensor([7])]" for rank in (0, 1)]


def test_a_safe_path_stays_safe(program: Program) -> None:
    program.edited.clear()
    text = "import sys\nprint(%d, sys.path, sys.path[0] in __file__)\n"
    program.write("train.py", text % 1, text % 2)
    program.same("train.py", more={"PYTHONSAFEPATH": "1"})


def test_the_launcher_runs_edited_files_and_names_them_in_the_manifest(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('old')\n")
    code = """
    import sys
    from pathlib import Path
    from perfwrap.launch import session
    from perfwrap.launch.options import EditedFile, Options
    path = Path(sys.argv[1])
    edited = EditedFile(path, path.read_bytes(), path.read_bytes().replace(b"old", b"new"))
    options = Options(out=path.parent / "run", monitors=False, report=False, overlay=(edited,))
    session.run([sys.executable, str(path)], options, print, print)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), script], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode, done.stderr) == ("new\n", 0, "")
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["options"]["overlay"] == [str(script)]
    assert (tmp_path / "run" / "edited.log").read_text().endswith(f"\t{script}\n")
