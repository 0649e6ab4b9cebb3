"""The cells that ran in a notebook are facts with their numbers, and so is the notebook; texts are not."""

from __future__ import annotations

SHELL = """
import types
sys.modules["IPython.core.interactiveshell"] = module = types.ModuleType("IPython.core.interactiveshell")
class InteractiveShell: pass
class Compiler: pass
module.InteractiveShell = InteractiveShell
InteractiveShell._instance = shell = InteractiveShell()
shell.compile, shell.user_ns = Compiler(), {"__vsc_ipynb_file__": "/w/code.ipynb"}
shell.compile._filename_map = ran = {"/tmp/ipykernel_1/1.py": 1, 5: "odd"}
from perfwrap_recorder.probes.run import cell_numbers
cell_numbers.install(torch)
"""


def test_cells_are_written_at_once_in_intervals_and_at_the_end(train) -> None:
    later = "ran['/tmp/ipykernel_1/2.py'] = 2\nfor look in journal.every_interval: look()\n"
    last = "ran['/tmp/ipykernel_1/1.py'] = 3\n"
    done = train(f"from perfwrap_recorder.journal import journal\n{SHELL}{later}{last}")
    written = [
        (found.name, done.journal.texts[found.value])
        for found in done.journal.of("FACT")
        if found.name.startswith("cell/")
    ]
    assert written == [
        ("cell//tmp/ipykernel_1/1.py", "1"),
        ("cell//tmp/ipykernel_1/2.py", "2"),
        ("cell//tmp/ipykernel_1/1.py", "3"),
    ]
    assert done.journal.facts["notebook"] == "/w/code.ipynb"


def test_the_name_of_the_session_is_the_notebook(train) -> None:
    done = train("os.environ['JPY_SESSION_NAME'] = '/w/lab.ipynb'\n" + SHELL)
    assert done.journal.facts["notebook"] == "/w/lab.ipynb"


def test_a_shell_of_another_kind_does_no_harm(train) -> None:
    for change in ("shell.compile = 3", "InteractiveShell._instance = None", "module.InteractiveShell = 3"):
        done = train(SHELL.replace("from perfwrap_recorder", change + "\nfrom perfwrap_recorder", 1))
        assert not [key for key in done.journal.facts if key.startswith("cell/")]


def test_without_a_notebook_nothing_is_written(train) -> None:
    done = train("")
    assert not [key for key in done.journal.facts if key.startswith("cell/") or key == "notebook"]
