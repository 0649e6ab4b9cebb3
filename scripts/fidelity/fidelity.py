"""Run real commands bare and under `perfwrap run`, and report what differs.

    python scripts/fidelity/fidelity.py --sources DIR                    all commands of public_scripts.toml
    python scripts/fidelity/fidelity.py --sources DIR mnist gpt          only those whose names contain one of the words
    python scripts/fidelity/fidelity.py --sources DIR --python PATH      with another interpreter and its torch
    python scripts/fidelity/fidelity.py --list FILE                      another list
    python scripts/fidelity/fidelity.py --json FILE                      the same for programs
    python scripts/fidelity/fidelity.py --options '--inspect'            with more options of `perfwrap run`

Each command runs bare and wrapped, one after the other, each time in a fresh copy of its folder at the same path, with
one compute thread, the same seeds, and every warning shown. It compares the exit code, stdout and stderr, the written
files bit for bit, the tensors in saved weights, all weights after each step of an optimizer, the states of the random
number generators at the end, and the order of imports (the observer notes these). If a program prints "steps made: N",
N steps must have been recorded. If anything differs, the command runs bare once more: numbers that differ between the
bare runs (mostly timings) are masked, and counted.

DIR holds a checkout of each source that the list names. The exit code is 1 if something differs, if a command ran too
long, or if perfwrap reached none of its processes.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import compare as comparing
from bench import HERE, TOO_LONG, Bench, Run, Script
from compare import DIFFERENT, NOTHING, SAME, UNSTEADY, Notes, Outcome
from perfwrap.errors import PerfwrapError
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.run_folder import STARTS, RunFolder
from perfwrap.sources.journals import run_journals

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_LINE = re.compile(r"^perfwrap: .*\n", re.M)
"""Messages of perfwrap to the user: where the run is, and on a busy machine which of its parts were late."""
OWN_FRAME = re.compile(r' *File "[^"]*<perfwrap [^"]*>", line \d+, in .*\n')
"""A line of a traceback that goes through a replaced function: a known difference, which is counted."""
STEPS_PRINTED = re.compile(r"^steps made: (\d+)$", re.M)
"""The number of steps of the main process that a program prints, counted as in a report."""
COLUMNS = (
    "exit",
    "stdout",
    "stderr",
    "files",
    "saved weights",
    "steps' weights",
    "random",
    "imports",
    "count",
)


@dataclass(frozen=True)
class Result:
    """The results of a script's runs."""

    script: Script
    outcomes: dict[str, Outcome]
    processes: int = 0
    """Python processes that perfwrap reached."""
    steps_seen: int = 0
    steps_taken: int = 0
    """Steps of all optimizers in processes that ended normally."""
    warnings: int = 0
    """Warnings that a bare run printed."""
    frames: int = 0
    """Lines of perfwrap in tracebacks."""

    @property
    def good(self) -> bool:
        """Whether nothing is different, and something was compared."""
        return self.processes > 0 and all(outcome.status != DIFFERENT for outcome in self.outcomes.values())


def compare(
    script: Script,
    base: Path,
    sources: Path | None,
    python: Path,
    printed: Path | None = None,
    options: Sequence[str] = (),
) -> Result:
    """Run one script bare and wrapped, and bare once more if these differ; compare the runs.

    ``options`` are more options of `perfwrap run`.
    """
    bench = Bench(base, script, sources, python)
    before = comparing.files_in(bench.pristine)
    bare = [bench.run()]
    perfwrap = [sys.executable, "-m", "perfwrap", "run", "--no-report", "--out", str(bench.recorded)]
    wrapped = bench.run(*perfwrap, *options, "--")
    recorded = _recorded(bench.recorded)
    result = judge(script, before, bare, wrapped, recorded)
    while not result.good and len(bare) < script.bare:
        bare.append(bench.run())
        result = judge(script, before, bare, wrapped, recorded)
    if printed:
        printed.mkdir(parents=True, exist_ok=True)
        for name, run in (
            ("wrapped", wrapped),
            *((f"bare{number}", run) for number, run in enumerate(bare, 1)),
        ):
            start = printed / re.sub(r"\W+", "_", f"{script.name} {name}")
            start.with_suffix(".out").write_text(run.stdout)
            start.with_suffix(".err").write_text(run.stderr)
    return result


def judge(
    script: Script, before: dict[str, str], bare: list[Run], wrapped: Run, recorded: tuple[int, int]
) -> Result:
    """Compare a wrapped run with bare ones; ``before`` are the files before, ``recorded`` what perfwrap recorded."""
    outcomes = {
        "exit": _exits([run.exit for run in bare], wrapped.exit),
        "stdout": _texts(script, [run.stdout for run in bare], wrapped.stdout),
        "stderr": _texts(
            script, [run.stderr for run in bare], OWN_FRAME.sub("", OWN_LINE.sub("", wrapped.stderr))
        ),
        "files": comparing.compare_files(before, [run.files for run in bare], wrapped.files),
        "saved weights": comparing.compare_files({}, [run.weights for run in bare], wrapped.weights),
        "steps' weights": _steps([run.notes for run in bare], wrapped.notes),
        "random": comparing.compare_notes([run.notes for run in bare], wrapped.notes, "random"),
        "imports": comparing.compare_imports([run.notes for run in bare], wrapped.notes),
        "count": _counts(bare[0].stdout, recorded[1]),
    }
    kept = {name: outcome for name, outcome in outcomes.items() if name not in script.leave_out}
    warnings = len(re.findall(r"^\S+:\d+: \w*Warning: ", bare[0].stderr, re.M))
    frames = len(OWN_FRAME.findall(wrapped.stderr))
    return Result(script, kept, *recorded, bare[0].notes.steps, warnings, frames)


def _exits(bare: list[str], wrapped: str) -> Outcome:
    if any(status != bare[0] for status in bare):
        return Outcome(UNSTEADY, unsteady=tuple(bare))
    if TOO_LONG in (bare[0], wrapped) or bare[0] != wrapped:
        return Outcome(DIFFERENT, 1, where=f"{bare[0]} became {wrapped}")
    return Outcome(SAME, 1, where=wrapped)


def _steps(bare: list[Notes], wrapped: Notes) -> Outcome:
    """Compare the weights after every step; the number of steps is the amount compared."""
    steps = max(notes.steps for notes in (*bare, wrapped))
    return (
        replace(comparing.compare_notes(bare, wrapped, "steps", "weights"), compared=steps)
        if steps
        else Outcome(NOTHING)
    )


def _counts(stdout: str, recorded: int) -> Outcome:
    """Compare the recorded steps with the number that the program prints, if it prints one."""
    printed = STEPS_PRINTED.findall(stdout)
    if not printed:
        return Outcome(NOTHING)
    made = int(printed[-1])
    return (
        Outcome(SAME, made)
        if made == recorded
        else Outcome(DIFFERENT, made, where=f"{made} became {recorded}")
    )


def _texts(script: Script, bare: list[str], wrapped: str) -> Outcome:
    texts = [*bare, wrapped]
    if script.keep:
        wanted = re.compile(script.keep)
        texts = ["\n".join(line for line in text.splitlines() if wanted.search(line)) for text in texts]
    if script.drop:
        texts = [re.sub(script.drop, "", text, flags=re.M) for text in texts]
    return comparing.compare_text(texts[:-1], texts[-1], not script.unordered)


def _recorded(folder: Path) -> tuple[int, int]:
    """Return how many processes perfwrap reached, and how many steps of the main one it recorded."""
    starts = [line for path in (folder / STARTS).glob("*") for line in path.read_text().splitlines()]
    processes = sum(line.startswith("start\t") for line in starts)
    try:
        evidence = Evidence(run_journals.read(RunFolder(folder)))
    except PerfwrapError:  # Without torch there is no journal.
        return processes, 0
    main = evidence.get(find_main_trainer)
    return processes, 0 if main is None else evidence.get(find_steps, main).count


def read_list(path: Path) -> list[Script]:
    """Return the scripts of a list; PerfwrapError for an unknown key."""
    content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        return [Script(**{**row, "leave_out": tuple(row.get("leave_out", ()))}) for row in content["script"]]
    except TypeError as error:
        raise PerfwrapError(f"{path}: {error}", "fidelity.py's class Script lists the words.") from error


def cell(outcome: Outcome | None) -> str:
    """Return one cell of the table."""
    if outcome is None:
        return "not compared"
    if outcome.status == SAME and outcome.masked:
        return f"same, {outcome.compared} of {outcome.compared + outcome.masked}"
    if outcome.status == SAME and outcome.compared > 1:
        return f"same, {outcome.compared}"
    names = {UNSTEADY: "bare runs differ", DIFFERENT: "**different**", NOTHING: "–"}
    return names.get(outcome.status, f"same, {outcome.where}".rstrip(", "))


def row(result: Result) -> str:
    """Return one line of the table."""
    cells = [cell(result.outcomes.get(column)) for column in COLUMNS]
    steps = f"{result.steps_seen} / {result.steps_taken}"
    return (
        f"| {result.script.name} | {' | '.join(cells)} | {result.warnings} | {result.processes} | {steps} |"
    )


def explain(result: Result) -> list[str]:
    """Return the differences of a script's wrapped run, and those between its bare runs."""
    lines = [] if result.processes else [f"{result.script.name}: perfwrap reached no process"]
    if result.frames:
        lines.append(f"  {result.script.name}, stderr: {result.frames} frames of perfwrap's in tracebacks")
    for column, outcome in result.outcomes.items():
        if outcome.status == DIFFERENT:
            lines.append(f"{result.script.name}, {column}: {outcome.where}")
        elif outcome.unsteady:
            lines.append(
                f"  {result.script.name}, {column}, bare runs differ: {'; '.join(outcome.unsteady[:5])[:300]}"
            )
    return lines


def main() -> int:
    """Run the requested scripts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument(
        "--list", type=Path, default=HERE / "public_scripts.toml", help="the list of commands"
    )
    parser.add_argument("--sources", type=Path, help="folder with the checkouts that the list names")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the interpreter of the commands"
    )
    parser.add_argument("--json", type=Path, help="write the results for programs into this file")
    parser.add_argument("--printed", type=Path, help="keep what each run printed in this folder")
    parser.add_argument("--options", default="", help="more options of `perfwrap run`, in one word")
    arguments = parser.parse_args()
    sources = arguments.sources.resolve() if arguments.sources else None
    results = []
    print(f"| script | {' | '.join(COLUMNS)} | warnings | processes | steps seen / taken |")
    print("|---" * (len(COLUMNS) + 4) + "|", flush=True)
    for script in read_list(arguments.list):
        if arguments.words and not any(word in script.name for word in arguments.words):
            continue
        with tempfile.TemporaryDirectory(prefix="fidelity") as base:
            results.append(
                compare(
                    script,
                    Path(base),
                    sources,
                    arguments.python.absolute(),
                    arguments.printed,
                    shlex.split(arguments.options),
                )
            )
        print(row(results[-1]), flush=True)
        print("\n".join(explain(results[-1])), file=sys.stderr, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 0 if results and all(result.good for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PerfwrapError as error:
        sys.exit(f"fidelity: {error.message} {error.hint}")
