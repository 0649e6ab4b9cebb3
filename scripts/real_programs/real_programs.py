"""Compare perfwrap's answers with what an independent profiler says about public training programs.

    python scripts/real_programs/real_programs.py --sources DIR               all programs of programs.toml
    python scripts/real_programs/real_programs.py --sources DIR ppo gpt       only those whose names contain a word
    python scripts/real_programs/real_programs.py --again KEPT                diagnose the runs of --keep KEPT again
    python scripts/real_programs/real_programs.py --sources DIR --truth       only record the truth with py-spy
    python scripts/real_programs/real_programs.py --sources DIR --change      only measure the changes of the list
    python scripts/real_programs/real_programs.py --python PATH ...           with another interpreter and its torch

Each program runs once bare under py-spy, which gives the truth (truth.py), and once under `perfwrap run`, each time in
a fresh copy of its folder with one compute thread. scoring.py compares the diagnosis with the expected answer of the
list, which was written from the truth and the program's text before perfwrap's answer was seen. Every program whose
number can be divided by three, or is above 73, is held out: for these only the score is printed. The truths are kept in
the folder truth/ and made again with --truth. --keep KEPT keeps perfwrap's runs and diagnoses.

DIR holds a checkout of each source that the list names; nothing is fetched. Nothing else should run on the machine. The
exit code is 1 if a program failed or its answer was misleading.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fidelity")]

import truth as truths  # noqa: E402
from bench import Bench, Run, Script  # noqa: E402
from scoring import SCORES, Expected, Score, score  # noqa: E402
from truth import Truth  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RATE = 50
LAST_TUNED = 73
"""Programs above this number were judged once, with the version that had not seen them."""
OF_SCRIPT = ("name", "command", "source", "folder", "prepare", "limit_s")
TRUTHS = HERE / "truth"


@dataclass(frozen=True)
class Program:
    """One program of the list."""

    number: int
    script: Script
    held_out: bool
    expected: Expected | None
    marks: Mapping[str, str] = field(default_factory=dict)
    """More marks of phases for truth.py: expressions for "file:function" and, of own files, "file:line" after it."""
    children: bool = False
    """Whether another process than the first one trains."""
    changed: str = ""
    """The command with a change of one option, or {old} => {new} in a file of the program."""

    @property
    def key(self) -> str:
        """Return the name of its files in the results folder."""
        return f"{self.number:02}_" + re.sub(r"\W+", "_", self.script.name).strip("_").lower()


def read_list(path: Path) -> list[Program]:
    """Return the programs of the list; PerfwrapError for a mistake in it."""
    content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return [_program(dict(row), path) for row in content["program"]]


def _program(row: dict[str, Any], path: Path) -> Program:
    environment = {"PYTHONWARNINGS": "ignore", **row.pop("environment", {})}
    parts = {name: row.pop(name) for name in OF_SCRIPT if name in row}
    script = Script(**{"limit_s": 240, **parts}, environment=environment, observe=False)
    expected = row.pop("expected", None)
    row.pop("measured", None)
    try:
        answer = (
            None if expected is None else Expected(**{key: _tuple(value) for key, value in expected.items()})
        )
        program = Program(script=script, expected=answer, held_out=row.pop("held_out", False), **row)
    except TypeError as error:
        raise PerfwrapError(
            f"{path}: {script.name}: {error}", "The classes Program and Expected list the words."
        ) from error
    if program.held_out != (program.number % 3 == 0 or program.number > LAST_TUNED):
        hint = f"It is true for each third number and for all above {LAST_TUNED}."
        raise PerfwrapError(f"{path}: {script.name}: held_out is wrong.", hint)
    return program


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def record_truth(program: Program, bench: Bench, printed: Path) -> Truth:
    """Run the program under py-spy, and keep what it saw in the results folder."""
    spy = Path(sys.executable).with_name("py-spy")
    recorded = bench.temporary.parent / "py-spy.json"
    words = [str(spy), "record", "--nonblocking", "--idle", "--threads", "--full-filenames"]
    words += ["--subprocesses"] if program.children else []
    words += ["--rate", str(RATE), "--format", "speedscope", "-o", str(recorded), "--"]
    start = time.monotonic()
    run = bench.run(*words)
    wall = time.monotonic() - start
    _keep(printed / "bare", run)
    if not recorded.is_file():
        raise PerfwrapError(f"py-spy recorded nothing: {run.stderr[-1500:]}")
    own = bench.work / (program.script.source or "here")
    found = truths.read(recorded, own, program.marks, wall)
    if "Traceback" in run.stderr and not found.phases["backward"]:
        raise PerfwrapError(f"{program.script.name} trained nothing: {run.stderr[-1500:]}")
    TRUTHS.mkdir(exist_ok=True)
    text = json.dumps(found.as_json(), indent=1)
    (TRUTHS / f"{program.key}.json").write_text(text + "\n", encoding="utf-8")
    return found


def record(program: Program, bench: Bench, printed: Path) -> float:
    """Run the program under perfwrap; return the seconds of the run."""
    start = time.monotonic()
    run = bench.run(sys.executable, "-m", "perfwrap", "run", "--out", str(bench.recorded), "--")
    wall = time.monotonic() - start
    _keep(printed / "wrapped", run)
    if run.exit != "0":
        raise PerfwrapError(f"{program.script.name} ended with {run.exit}.", run.stderr[-1500:])
    (printed / "wall_s").write_text(f"{wall:.1f}\n", encoding="utf-8")
    return wall


def diagnose(recorded: Path, printed: Path) -> dict[str, Any]:
    """Return the diagnosis of a run, and keep it with the report."""
    report = [sys.executable, "-m", "perfwrap", "report", str(recorded)]
    said = {
        name: subprocess.run([*report, *options], stdout=subprocess.PIPE, check=True, text=True).stdout
        for name, options in (("report.txt", ()), ("diagnosis.json", ("--format", "json")))
    }
    for name, text in said.items():
        (printed / name).write_text(text, encoding="utf-8")
    diagnosis: dict[str, Any] = json.loads(said["diagnosis.json"])
    return diagnosis


def _keep(start: Path, run: Run) -> None:
    start.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{start}.out").write_text(run.stdout, encoding="utf-8")
    Path(f"{start}.err").write_text(run.stderr, encoding="utf-8")


def measure_change(program: Program, base: Path, arguments: argparse.Namespace) -> str:
    """Return how long the program takes with the change of the list, compared with before."""
    seconds: dict[str, list[float]] = {"before": [], "changed": []}
    for name in ("before", "changed"):
        (base / name).mkdir(parents=True)
    sources, python = arguments.sources.resolve(), arguments.python.absolute()
    benches = {name: Bench(base / name, program.script, sources, python) for name in seconds}
    command, _, edit = program.changed.partition(" ## ")
    if edit:
        _edit(benches["changed"].pristine / benches["changed"].place, edit)
    commands = {"before": program.script.command, "changed": command or program.script.command}
    for name in ("before", "changed", "changed", "before"):
        bench = benches[name]
        bench.script = Script(**{**vars(program.script), "command": commands[name]})
        start = time.monotonic()
        run = bench.run()
        seconds[name].append(time.monotonic() - start)
        if run.exit != "0":
            raise PerfwrapError(f"{program.script.name} ended with {run.exit}.", run.stderr[-1500:])
    before, after = (min(seconds[name]) for name in ("before", "changed"))
    return f"{after / before:.2f} of {before:.0f} s"


def _edit(folder: Path, edit: str) -> None:
    """Change one file: "file: old => new"."""
    file, _, change = edit.partition(": ")
    old, _, new = change.partition(" => ")
    path = folder / file
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise PerfwrapError(f"{file} has {text.count(old)} times {old!r}.", "The change must name one place.")
    path.write_text(text.replace(old, new), encoding="utf-8")


def row(program: Program, found: Truth, diagnosis: Mapping[str, Any], wall: float, result: Score) -> str:
    """Return one line of the table; for a program that is held out only the score."""
    start = f"| {program.number} | {program.script.name} | {found.wall_s:.0f} | {wall:.0f} "
    if program.held_out:
        return f"{start}| | | **{result.score}** (held out) |"
    largest = sorted(found.phases.items(), key=lambda item: -item[1])[:4]
    truth = ", ".join(f"{name} {share:.0%}" for name, share in largest)
    first = next(iter(diagnosis["findings"]), None)
    said = diagnosis["verdict"]["id"]
    if first is not None:
        place = first["location"] or {"file": "", "line": ""}
        line = f" {place['file'].rpartition('/')[2]}:{place['line']}" if place["file"] else ""
        said += f"; {first['rule']}{line} {first['share']:.0%}"
    why = f": {'; '.join(result.reasons)}" if result.reasons else ""
    return f"{start}| {truth} | {said} | **{result.score}**{why} |"


def answer(program: Program, base: Path, arguments: argparse.Namespace) -> str | None:
    """Record what is asked for in the folder; return the score, if there is one."""
    printed = base / "printed"
    kept_truth = TRUTHS / f"{program.key}.json"
    if arguments.again:
        wall = float((printed / "wall_s").read_text(encoding="utf-8"))
    else:
        shutil.rmtree(base, ignore_errors=True)
        printed.mkdir(parents=True)
        bench = Bench(base, program.script, arguments.sources.resolve(), arguments.python.absolute())
        if arguments.truth or not kept_truth.is_file():
            record_truth(program, bench, printed)
        if arguments.truth or program.expected is None:
            return None
        wall = record(program, bench, printed)
        shutil.rmtree(bench.pristine)
    if program.expected is None:
        return None
    found, diagnosis = truths.saved(kept_truth), diagnose(base / "run", printed)
    result = score(diagnosis, program.expected, found)
    print(row(program, found, diagnosis, wall, result), flush=True)
    return result.score


def main() -> int:
    """Run the requested programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "words", nargs="*", help="run only programs whose names contain one of these, or their numbers"
    )
    parser.add_argument("--list", type=Path, default=HERE / "programs.toml", help="the list")
    parser.add_argument("--sources", type=Path, help="folder with the checkouts")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the programs' interpreter")
    parser.add_argument("--keep", type=Path, help="keep the runs and what was printed in this folder")
    parser.add_argument("--again", type=Path, help="diagnose the runs kept in this folder again")
    parser.add_argument("--truth", action="store_true", help="only record the truth with py-spy, again")
    parser.add_argument("--change", action="store_true", help="only measure the changes of the list")
    arguments = parser.parse_args()
    if arguments.sources is None and arguments.again is None:
        parser.error("--sources DIR or --again KEPT is needed")
    scores: Counter[str] = Counter()
    failed = 0
    if not (arguments.truth or arguments.change):
        print("| | program | bare s | wrapped s | truth (py-spy) | perfwrap | score |")
        print("|---" * 7 + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="real") as temporary:
        folder = (arguments.again or arguments.keep or Path(temporary)).resolve()
        for program in read_list(arguments.list):
            base = folder / program.key
            if arguments.words and not _is_wanted(program, arguments.words):
                continue
            if arguments.again and not (base / "printed" / "wall_s").is_file():
                continue
            try:
                if arguments.change:
                    if program.changed:
                        print(
                            program.number,
                            program.script.name,
                            measure_change(program, base, arguments),
                            flush=True,
                        )
                elif said := answer(program, base, arguments):
                    scores[said] += 1
            except (PerfwrapError, subprocess.CalledProcessError, OSError) as error:
                failed += 1
                print(f"{program.number} {program.script.name}: {error}", file=sys.stderr, flush=True)
            if not (arguments.again or arguments.keep):
                shutil.rmtree(base, ignore_errors=True)
    if scores:
        print(", ".join(f"{name}: {scores[name]}" for name in SCORES))
    return int(failed > 0 or scores["misleading"] > 0)


def _is_wanted(program: Program, words: list[str]) -> bool:
    return any(
        word == str(program.number) if word.isdigit() else word in program.script.name for word in words
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PerfwrapError as error:
        sys.exit(f"real_programs: {error.message} {error.hint}")
