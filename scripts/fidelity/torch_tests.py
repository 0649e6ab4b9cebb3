"""Run PyTorch's own tests bare and under `perfwrap run`, and compare their results.

    S=DIR                                            the folder of PyTorch's sources and of bare runs
    python scripts/fidelity/torch_tests.py --sources $S/test --bare $S/bare --python PATH --only-bare
    python scripts/fidelity/torch_tests.py --sources $S/test --bare $S/bare --python PATH --perfwrap PATH
    python scripts/fidelity/torch_tests.py ... test_fx.py dynamo/test_hooks.py       only these files
    python scripts/fidelity/torch_tests.py ... --windows          with a dataflow window open in each test
    python scripts/fidelity/torch_tests.py ... --shuffle WORD     another sample of each file

The first command makes the bare runs, the second the wrapped ones. The files are listed in torch_tests.toml, with the
number of tests of each. --sources is the folder `test` of PyTorch's sources, which this script does not download.
--python is an interpreter with torch, preferably of the same release, and with the packages that the tests need: pytest
7, expecttest, hypothesis, numpy, scipy, psutil, pyyaml. --perfwrap is the perfwrap to test, in any environment.

--bare is the folder for bare runs, a JSON file for each file of tests; existing runs are not repeated. If a result
differs, the file runs bare once more, which is kept as well: differences between two bare runs are not counted. Each
run is one process in a fresh copy of the sources, with one compute thread.

Two tests are equal if they have the same outcome and the same message (for failed tests the traceback), without
numbers, addresses and names of temporary files; frames of perfwrap are left out, and counted. The script prints one
line of a table for each file, and each different test to stderr; --json FILE writes both messages in full. The exit
code is 1 if a test differs, if perfwrap reached no process, or if no test ran.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import HERE, Bench, Script
from compare import split
from fidelity import OWN_FRAME
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import STARTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OUTCOMES = ("passed", "failed", "skipped", "xfailed", "xpassed", "error", "unfinished")
"""The outcomes of a test; of a test with several phases, the last one in this list counts."""
COMMAND = (
    "python -m pytest -p no:cacheprovider -p no:warnings -p no:randomly -p fidelity_tests -p fidelity_windows -q"
    " --rootdir=. --tb=native --assert=plain --capture=sys"
)
"""As in PyTorch's pytest.ini."""
WHAT = "import json, platform, torch; print(json.dumps([torch.__version__, platform.python_version()]))"


@dataclass(frozen=True)
class TestFile:
    """One file of the list."""

    path: str
    select: str = ""
    """The expression of pytest's -k, for tests that fail beside others of the same file."""
    sample: int = 0
    limit_s: int = 1800
    leave_out: tuple[str, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.path}, {self.select}" if self.select else self.path

    @property
    def kept(self) -> str:
        """The name of the file with its bare runs."""
        return re.sub(r"\W+", "_", self.name.replace("/", "__").replace(".py", "")) + ".json"


@dataclass
class Tests:
    """The results of one run of a file."""

    exit: str
    seconds: float
    collected: int
    tests: dict[str, dict[str, Any]]
    """By name: outcome, message and seconds."""
    end: str
    """The last lines of the output."""
    cpu_s: float = 0.0
    """Seconds of processors, all processes together."""

    def counts(self) -> Counter[str]:
        """Return how many tests have each outcome."""
        return Counter(test["outcome"] for test in self.tests.values())


@dataclass
class Windows:
    """The dataflow windows of one wrapped run, by test."""

    whole: int = 0
    """Tests that ran in an open window from beginning to end."""
    operations: int = 0
    closed: Counter[str] = field(default_factory=Counter)
    """Why windows closed before the end of a test, or did not open, and how often."""


@dataclass(frozen=True)
class Difference:
    """One test with different results."""

    test: str
    bare: str
    wrapped: str
    bare_message: str
    wrapped_message: str


@dataclass
class Result:
    """The comparison of one file."""

    path: str
    bare: Tests
    wrapped: Tests
    processes: int
    frames: int
    differences: list[Difference]
    unsteady: list[str]
    """Tests whose bare runs differ."""
    windows: Windows | None = None

    @property
    def good(self) -> bool:
        """Whether nothing is different, and something was compared."""
        if self.windows is not None and not self.windows.operations:
            return False
        return self.processes > 0 and len(self.wrapped.tests) > 0 and not self.differences


def read_notes(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return how many tests were collected, and the result of each that ran."""
    collected, tests = 0, {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        kind, *words = json.loads(line)
        if kind == "collected":
            collected = words[0]
            continue
        test = tests.setdefault(words[0], {"outcome": "unfinished", "message": "", "seconds": 0.0})
        if kind == "end":
            _, when, outcome, message, seconds = words
            before = "" if test["outcome"] == "unfinished" else test["outcome"]
            test["outcome"] = max(before, outcome, key=lambda word: OUTCOMES.index(word) if word else -1)
            if when == "setup" and outcome == "passed":
                test["outcome"] = "unfinished"
            test["message"] += message
            test["seconds"] = round(test["seconds"] + seconds, 3)
    return collected, tests


def read_windows(path: Path) -> Windows:
    """Return what is noted of the windows."""
    windows = Windows()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        _, why, operations = json.loads(line)
        windows.operations += operations
        if why:
            windows.closed[why] += 1
        else:
            windows.whole += 1
    return windows


def run(bench: Bench, base: Path, *wrapper: str) -> Tests:
    """Run a file of tests once."""
    notes = base / "tests.jsonl"
    for path in (notes, base / "windows.jsonl"):
        path.unlink(missing_ok=True)
    started, used = time.monotonic(), _used()
    done = bench.run(*wrapper)
    seconds, cpu_s = time.monotonic() - started, _used() - used
    collected, tests = read_notes(notes)
    for test in tests.values():
        test["message"] = test["message"].replace(str(base), "BASE")
    end = (done.stdout[-2000:] + done.stderr[-2000:]).strip()
    return Tests(done.exit, round(seconds, 1), collected, tests, end, round(cpu_s, 1))


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shape(test: dict[str, Any] | None) -> tuple[str, tuple[str, ...]]:
    """Return the part of a test's result that is compared."""
    if test is None:
        return "not run", ()
    lines = OWN_FRAME.sub("", test["message"]).splitlines()
    return test["outcome"], tuple(split(line)[0] for line in lines)


def differing(one: Tests, other: Tests) -> list[str]:
    """Return the names of tests that differ between two runs."""
    names = [*one.tests, *(name for name in other.tests if name not in one.tests)]
    return [name for name in names if shape(one.tests.get(name)) != shape(other.tests.get(name))]


def judge(path: str, bare: list[Tests], wrapped: Tests, processes: int) -> Result:
    """Compare a wrapped run with bare ones."""
    unsteady = {name for other in bare[1:] for name in differing(bare[0], other)}
    differences = []
    for name in differing(bare[0], wrapped):
        if name not in unsteady:
            one, other = bare[0].tests.get(name), wrapped.tests.get(name)
            messages = [test["message"] if test else "" for test in (one, other)]
            differences.append(Difference(name, shape(one)[0], shape(other)[0], messages[0], messages[1]))
    if bare[0].exit != wrapped.exit and not differences and not unsteady:
        differences.append(Difference("the exit code", bare[0].exit, wrapped.exit, bare[0].end, wrapped.end))
    frames = sum(len(OWN_FRAME.findall(test["message"])) for test in wrapped.tests.values())
    return Result(path, bare[0], wrapped, processes, frames, differences, sorted(unsteady))


def reached(folder: Path) -> int:
    """Return how many processes perfwrap reached."""
    starts = [line for path in (folder / STARTS).glob("*") for line in path.read_text().splitlines()]
    return sum(line.startswith("start\t") for line in starts)


class Kept:
    """The bare runs of one file that are kept."""

    def __init__(self, folder: Path, file: TestFile, versions: list[str], shuffle: str) -> None:
        self.path = folder / file.kept
        sample = f"{file.sample} {shuffle}" if file.sample and shuffle else file.sample
        self.head = {"path": file.name, "sample": sample, "torch": versions[0], "python": versions[1]}
        self.runs: list[Tests] = []
        if self.path.exists():
            content = json.loads(self.path.read_text())
            if any(content[name] != value for name, value in self.head.items()):
                raise PerfwrapError(
                    f"{self.path} was run with another torch or another sample.",
                    "Name another folder by --bare, or remove the file.",
                )
            self.runs = [Tests(**kept) for kept in content["runs"]]

    def add(self, tests: Tests) -> None:
        """Keep one more run."""
        self.runs.append(tests)
        content = {**self.head, "runs": [asdict(kept) for kept in self.runs]}
        self.path.write_text(json.dumps(content, indent=1))


def compare(file: TestFile, arguments: argparse.Namespace, versions: list[str]) -> Result | Tests:
    """Run one file bare, unless a bare run is kept, and wrapped; only bare if requested."""
    kept = Kept(arguments.bare, file, versions, arguments.shuffle)
    if arguments.only_bare and kept.runs:
        return kept.runs[0]
    with tempfile.TemporaryDirectory(prefix="fidelity") as folder:
        base = Path(folder)
        environment = {
            "FIDELITY_TESTS": str(base / "tests.jsonl"),
            "FIDELITY_SAMPLE": str(file.sample),
            "FIDELITY_SHUFFLE": arguments.shuffle,
            "FIDELITY_LEAVE_OUT": " ".join(file.leave_out),
            "PYTHONPATH": str(HERE / "pytest_plugin"),
        }
        if arguments.windows:
            environment["FIDELITY_WINDOWS"] = str(base / "windows.jsonl")
        sources = arguments.sources.resolve()
        script = Script(
            file.path,
            f"{COMMAND} {file.path} -k {shlex.quote(file.select)}"
            if file.select
            else f"{COMMAND} {file.path}",
            source=sources.name,
            limit_s=file.limit_s,
            observe=False,
            environment=environment,
        )
        bench = Bench(base, script, sources.parent, arguments.python.absolute())
        if not kept.runs:
            kept.add(run(bench, base))
        if arguments.only_bare:
            return kept.runs[0]
        perfwrap = [str(arguments.perfwrap.absolute()), "run", "--no-report", "--out", str(bench.recorded)]
        wrapped = run(bench, base, *perfwrap, *(["--inspect"] if arguments.windows else []), "--")
        windows = read_windows(base / "windows.jsonl") if arguments.windows else None
        processes = reached(bench.recorded)
        result = judge(file.name, kept.runs, wrapped, processes)
        if result.differences and len(kept.runs) < 2:
            kept.add(run(bench, base))
            result = judge(file.name, kept.runs, wrapped, processes)
        result.windows = windows
        return result


def read_list(path: Path) -> list[TestFile]:
    """Return the files of a list; PerfwrapError for an unknown key."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        return [TestFile(**{**row, "leave_out": tuple(row.get("leave_out", ()))}) for row in content["file"]]
    except TypeError as error:
        raise PerfwrapError(f"{path}: {error}", "torch_tests.py's class TestFile lists the words.") from error


HEAD = ("file", "collected", "ran", *OUTCOMES, "exit", "bare s", "CPU s")
MORE = ("wrapped s", "CPU s", "processes", "frames", "bare runs differ", "different")
OF_WINDOWS = ("whole windows", "operations")


def row(path: str, bare: Tests) -> list[str]:
    """Return the cells of a bare run."""
    counts = bare.counts()
    numbers = [f"{count:,}" for count in (bare.collected, len(bare.tests), *(counts[o] for o in OUTCOMES))]
    return [path, *numbers, bare.exit, f"{bare.seconds:.0f}", f"{bare.cpu_s:.0f}"]


def wrapped_cells(result: Result) -> list[str]:
    """Return the cells of a wrapped run."""
    count, windows = len(result.differences), result.windows
    of_windows = [f"{windows.whole:,}", f"{windows.operations:,}"] if windows is not None else []
    return [
        f"{result.wrapped.seconds:.0f}",
        f"{result.wrapped.cpu_s:.0f}",
        f"{result.processes:,}",
        f"{result.frames:,}",
        f"{len(result.unsteady):,}",
        f"**{count:,}**" if count else "0",
        *of_windows,
    ]


def last(message: str) -> str:
    """Return the most informative line of a message: the exception."""
    lines = [line for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\S*(Error|Exception|Warning|Exit|Interrupt)\b", line)]
    return (errors or lines or [""])[-1][:300]


def first_odd(difference: Difference) -> tuple[str, str]:
    """Return the first lines on which two messages differ."""
    one, other = (
        [*OWN_FRAME.sub("", text).splitlines(), ""]
        for text in (difference.bare_message, difference.wrapped_message)
    )
    for left, right in zip(one, other, strict=False):
        if split(left)[0] != split(right)[0]:
            return left.strip()[:300], right.strip()[:300]
    return last(difference.bare_message), last(difference.wrapped_message)


def explain(result: Result) -> list[str]:
    """Return the differences, test by test."""
    lines = [] if result.processes else [f"{result.path}: perfwrap reached no process"]
    for difference in result.differences:
        lines.append(f"{difference.test}: {difference.bare} became {difference.wrapped}")
        if difference.bare == difference.wrapped:
            lines += [f"    {text}" for text in first_odd(difference)]
        else:
            lines += [f"    {last(m)}" for m in (difference.bare_message, difference.wrapped_message) if m]
    if result.windows is not None:
        lines += [
            f"{count} without a whole window: {why}" for why, count in result.windows.closed.most_common()
        ]
    return lines


def main() -> int:
    """Run the requested files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", help="run only these files of the list")
    parser.add_argument("--list", type=Path, default=HERE / "torch_tests.toml", help="the list of files")
    parser.add_argument("--sources", type=Path, required=True, help="the folder `test` of PyTorch's sources")
    parser.add_argument("--bare", type=Path, required=True, help="the folder that keeps bare runs")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the interpreter that runs the tests"
    )
    parser.add_argument("--perfwrap", type=Path, help="the perfwrap that is tested")
    parser.add_argument(
        "--only-bare", action="store_true", help="run what is not kept yet, and compare nothing"
    )
    parser.add_argument(
        "--windows", action="store_true", help="run `perfwrap run --inspect`, with a window open in each test"
    )
    parser.add_argument("--shuffle", default="", help="a word that selects another sample of each file")
    parser.add_argument("--json", type=Path, help="write the differences in full into this file")
    arguments = parser.parse_args()
    if not arguments.only_bare and arguments.perfwrap is None:
        parser.error("--perfwrap or --only-bare is needed")
    files = read_list(arguments.list)
    unknown = set(arguments.files) - {file.path for file in files}
    if unknown:
        parser.error(f"not in {arguments.list}: {' '.join(sorted(unknown))}")
    arguments.bare.mkdir(parents=True, exist_ok=True)
    printed = subprocess.run([arguments.python, "-c", WHAT], stdout=subprocess.PIPE, text=True, check=True)
    versions = json.loads(printed.stdout)
    print(f"torch {versions[0]}, Python {versions[1]}\n")
    more = () if arguments.only_bare else (*MORE, *OF_WINDOWS) if arguments.windows else MORE
    columns = (*HEAD, *more)
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    good, found = True, []
    for file in files:
        if arguments.files and file.path not in arguments.files:
            continue
        if not (arguments.sources / file.path).exists():
            print(f"{file.name}: not in these sources", file=sys.stderr, flush=True)
            continue
        result = compare(file, arguments, versions)
        if isinstance(result, Tests):
            print(f"| {' | '.join(row(file.name, result))} |", flush=True)
            continue
        print(f"| {' | '.join([*row(file.name, result.bare), *wrapped_cells(result)])} |", flush=True)
        print("\n".join(explain(result)), file=sys.stderr, flush=True)
        good = good and result.good
        found.append(
            {
                "path": result.path,
                "differences": [asdict(difference) for difference in result.differences],
                "unsteady": result.unsteady,
            }
        )
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1))
    return 0 if good and (found or arguments.only_bare) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PerfwrapError as error:
        sys.exit(f"fidelity: {error.message} {error.hint}")
