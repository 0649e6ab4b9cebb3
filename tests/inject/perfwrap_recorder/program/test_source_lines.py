"""The line in a label is the one that the user wrote."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SAY = "journal.span(1, 1, 1, source_lines.label('x', sys._getframe(0)), journal_format.SYNC)"
LIBRARY = """
import sys
from perfwrap_recorder import journal_format
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines
def note():
    journal.span(1, 1, 1, source_lines.label("x", sys._getframe(0)), journal_format.SYNC)
class Trainer:
    def train(self, step):
        return step()
    def note(self):
        note()
"""


def make_library(folder: Path) -> None:
    """Put a package into a site-packages folder."""
    package = folder / "env/lib/site-packages/library"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "trainer.py").write_text(LIBRARY)


def lines(done) -> list[tuple[str, int, str] | None]:
    """Return the places of all syncs, in the order of the file."""
    return [found.line for found in done.journal.records if found.kind == "SYNC"]


def test_it_is_the_line_of_the_calling_code(run, interpreter: str) -> None:
    done = run(
        f"""
open_journal()
class Loop:
    def run(self):
        {SAY}
Loop().run()
(lambda: Loop().run())()
""",
        python=interpreter,
    )
    (place, _) = found = lines(done)
    assert found[0] == found[1]
    program = (done.run_dir / "program.py").read_text().splitlines()
    assert place[0] == "program.py"
    assert "journal.span" in program[place[1] - 1]
    assert place[2] in ("run", "Loop.run")


def test_two_calls_on_different_lines_are_distinguished_and_the_same_one_is_not(
    run, interpreter: str
) -> None:
    done = run(
        """
open_journal()
def note():
    journal.span(1, 1, 1, source_lines.label("x", sys._getframe(1)), journal_format.SYNC)
for _ in range(3):
    note()
note()
""",
        python=interpreter,
    )
    found = lines(done)
    assert found[0] == found[1] == found[2] != found[3]
    assert found[3][1] - found[0][1] == 1
    assert found[0][2] == "<module>"


def test_the_standard_library_is_looked_through(run, interpreter: str) -> None:
    done = run(
        """
import contextlib, functools
open_journal()
def note():
    journal.span(1, 1, 1, source_lines.label("x", sys._getframe(1)), journal_format.SYNC)
@contextlib.contextmanager
def noted():
    yield
    note()
with contextlib.ExitStack() as stack:
    stack.callback(note)
    marker = 1
""",
        python=interpreter,
    )
    (place,) = lines(done)
    program = (done.run_dir / "program.py").read_text().splitlines()
    assert place[0] == "program.py"
    assert "stack" in program[place[1] - 1] or "marker" in program[place[1] - 1]


def test_files_of_the_compiler_are_looked_through(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
def note():
    journal.span(1, 1, 1, source_lines.label("x", sys._getframe(1)), journal_format.SYNC)
name = "/tmp/torchinductor_me/hf/chfvpmnfz65stldetsye3pwp776mn363pjywvwyqcl4qt5cyn7zl.py"
exec(compile("note()", name, "exec"), {"note": note, "__name__": "compiled"})
exec(compile("note()", name.replace("/hf/", "/aa/"), "exec"), {"note": note, "__name__": "own"})
""",
        python=interpreter,
    )
    compiled, own = lines(done)
    assert (compiled[0], own[0][:4]) == ("program.py", "chfv")


def test_the_line_that_starts_a_spawned_process_is_not_the_users(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
def note():
    journal.span(1, 1, 1, source_lines.label("x", sys._getframe(1)), journal_format.SYNC)
for program in ("spawn_main = note; note()", "note()"):
    exec(compile(program, "<string>", "exec"), {"note": note, "__name__": "__main__"})
""",
        python=interpreter,
    )
    spawned, own = lines(done)
    assert (spawned[0], own[0]) == ("program.py", "<string>")


def test_a_library_is_named_beside_the_users_line(run, tmp_path: Path, interpreter: str) -> None:
    make_library(tmp_path)
    done = run(
        """
sys.path.insert(0, sys.argv[1] + "/env/lib/site-packages")
from library.trainer import Trainer
open_journal()
trainer = Trainer()
def step():
    trainer.note()
trainer.train(step)
trainer.note()
""",
        python=interpreter,
    )
    first, second = (found.name.split("\x1f") for found in done.journal.records if found.kind == "SYNC")
    assert first[3] == "step"
    assert first[4] == second[4] == "library/trainer.py:7"
    assert second[3] == "<module>"
    assert Path(first[1]).name == "program.py"


def test_a_program_from_site_packages_gets_its_own_line(run, tmp_path: Path, interpreter: str) -> None:
    make_library(tmp_path)
    run("")
    packages = tmp_path / "env/lib/site-packages"
    preamble = (tmp_path / "program.py").read_text()
    (packages / "library/__main__.py").write_text(
        preamble + "open_journal()\nfrom library.trainer import note\nnote()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = run.command([interpreter, "-m", "library", str(tmp_path), str(1 << 20)], env=environment)
    assert lines(done) == [("trainer.py", 7, "note")]


def test_a_program_without_a_file_is_the_users(run, tmp_path: Path, interpreter: str) -> None:
    run("")
    program = (tmp_path / "program.py").read_text() + f"open_journal()\n\n{SAY}\n"
    count = program[: program.index("journal.span(")].count("\n") + 1
    for arguments, given, name in ((["-c", program], None, "<string>"), (["-"], program, "<stdin>")):
        for old in (tmp_path / "journal").glob("*"):
            old.unlink()
        done = run.command([interpreter, *arguments, str(tmp_path), str(1 << 20)], input=given)
        assert lines(done) == [(name, count, "<module>")]


def test_code_made_on_the_fly_is_looked_through_unless_it_is_the_program(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
import dataclasses
def note():
    journal.span(1, 1, 1, source_lines.label("x", sys._getframe(1)), journal_format.SYNC)
made = {"note": note}
exec(compile("def call(): note()", "<made>", "exec"), made)
def use():
    made["call"]()
use()
""",
        python=interpreter,
    )
    (place,) = lines(done)
    assert (place[0], place[2]) == ("program.py", "use")


def test_a_relative_script_is_named_by_its_whole_path_after_a_change_of_folder(run, tmp_path: Path) -> None:
    run("")
    program = (tmp_path / "program.py").read_text() + f"open_journal()\nos.chdir('/')\n{SAY}\n"
    (tmp_path / "script.py").write_text(program)
    start = "import sys; exec(compile(open('script.py').read(), 'script.py', 'exec'))"
    done = run.command([sys.executable, "-c", start, str(tmp_path), str(1 << 20)])
    (span,) = done.journal.of("SYNC")
    assert span.name.split("\x1f")[1] == str(tmp_path / "script.py")


def test_places_without_end_are_bounded(run) -> None:
    done = run(
        """
open_journal()
source_lines.MAX_PLACES = 500
namespace = {"journal": journal, "source_lines": source_lines, "sys": sys, "__name__": "__main__"}
kept = [compile("source_lines.label('x', sys._getframe(0))", "made%d.py" % number, "exec") for number in range(2_000)]
for code in kept:
    exec(code, namespace)
print(max(1, len(source_lines.places)))
"""
    )
    assert 1 <= int(done.stdout) <= 501


def test_code_of_the_program_is_not_kept_alive(run) -> None:
    """torch.compile keeps graphs as long as the code that they are for."""
    done = run(
        """
import weakref
open_journal()
source_lines.skip_code = bool
namespace = {"journal": journal, "source_lines": source_lines, "sys": sys, "__name__": "__main__"}
line = "frame = sys._getframe(0); source_lines.label('x', frame); source_lines.call_from(frame, len, ([],), {})"
code = compile(line + "; del frame", "made.py", "exec")
exec(code, namespace)
known = len(source_lines.places)
reference = weakref.ref(code)
del code
print(known - len(source_lines.places), reference())
"""
    )
    assert done.stdout == "1 None\n"


def test_a_known_line_costs_little(run) -> None:
    done = run(
        """
open_journal()
def look():
    frame = sys._getframe(0)
    started = clock.now()
    for _ in range(2_000): source_lines.label("x", frame)
    known = clock.now() - started
    started = clock.now()
    for _ in range(2_000): open("/dev/null").close()
    print(known < clock.now() - started)
look()
"""
    )
    assert done.stdout == "True\n"
