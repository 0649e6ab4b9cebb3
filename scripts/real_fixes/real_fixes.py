"""Run training on real projects before and after a performance fix, and report whether perfwrap names the fixed line.

    python scripts/real_fixes/real_fixes.py --sources DIR               all pairs of fixes.toml
    python scripts/real_fixes/real_fixes.py --sources DIR kornia tbsm   only those whose names contain one of the words
    python scripts/real_fixes/real_fixes.py --sources DIR --recorded    do not measure; use the ratios of fixes.toml
    python scripts/real_fixes/real_fixes.py --sources DIR --times       only measure the ratios; do not run perfwrap
    python scripts/real_fixes/real_fixes.py --sources DIR --keep KEPT   keep checkouts, times and runs in KEPT
    python scripts/real_fixes/real_fixes.py --sources DIR --inspect     also record the operations of six steps
    python scripts/real_fixes/real_fixes.py --again KEPT                run nothing: diagnose the runs in KEPT again

Each pair is a commit of a public project that made training faster, and the commit before it. DIR holds git clones of
the projects, as ``OWNER+NAME`` or ``NAME``; nothing is fetched. The pair's driver, a training script in drivers/, is
copied into a checkout of each commit, with small_images.py, and runs there with --python, which has the projects'
libraries. The measured ratio is that of the CPU times of an epoch, before over after: medians over the epochs except
the first, then over 3 runs each, in turn. (All drivers work in one thread and never wait; other programs disturb their
CPU time less.) Then ``perfwrap run`` records the version before the fix.

The guilty lines are the lines that the fix replaced. The result is the best of these that is true:

    first     the location of the first finding is a guilty line
    named     the location or text of any finding is a guilty line
    around    a finding names a range of lines, or a function, that holds a guilty line
    nothing   none of them

Findings about the start of the run do not count, since the drivers are short.

A control is a change that sounds like a fix but saves almost nothing. It is ``right`` if no finding at a guilty line
promises a saving of 10 points more than the measured one, else ``wrong``. perfwrap is not tuned on held-out pairs:
every third of the first 37 pairs of the list, by place, and every second of those after them.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import psutil
from judge import Guilty, judge, promised

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
EPOCH = re.compile(r"epoch \d+ .*seconds|Epoch took ")
"""The line that a driver prints after each epoch."""
LARGE = 0.1
"""A control's promise of this much more than was measured is wrong."""
CONTROL = "control"
FIRST_PAIRS = 37
"""Of the pairs up to this place every third is held out, of later ones every second."""
START = ("slow_start",)


@dataclass(frozen=True)
class Pair:
    """One fix of the list."""

    name: str
    repository: str
    before: str
    after: str
    kind: str
    guilty: tuple[Guilty, ...]
    ratio: float | None = None
    """The ratio that was measured when the pair was added."""
    held_out: bool = False
    opened: bool = False
    """Whether a rule was changed because of a held-out pair: then it counts as an open one."""
    files: tuple[str, ...] = ("*.py",)
    """The files that are unpacked."""
    path: str = "."
    """The folder below which the project's modules are."""
    needs: tuple[tuple[str, str], ...] = ()
    """Other projects that it imports: repository and commit."""
    environment: tuple[tuple[str, str], ...] = ()
    clock: str = "processor"
    """What the ratio compares: processor time, or ``wall`` time if the program waits for other processes."""

    @property
    def driver(self) -> Path:
        """The training script."""
        return HERE / "drivers" / f"{self.name}.py"


def read_pairs() -> list[Pair]:
    """Read fixes.toml."""
    pairs = []
    for name, table in tomllib.loads((HERE / "fixes.toml").read_text(encoding="utf-8")).items():
        guilty = tuple(Guilty.parse(text) for text in table.pop("guilty"))
        lists = {key: tuple(map(_fixed, value)) for key, value in table.items() if isinstance(value, list)}
        variables = tuple(table.pop("environment", {}).items())
        pairs.append(Pair(name, **{**table, **lists, "guilty": guilty, "environment": variables}))
    for place, pair in enumerate(pairs, 1):
        if pair.held_out != (place % 3 == 0 if place <= FIRST_PAIRS else place % 2 == 1):
            raise SystemExit(f"{pair.name}: held_out does not fit its place; see the text above.")
    return [replace(pair, held_out=pair.held_out and not pair.opened) for pair in pairs]


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def git_folder(sources: Path, repository: str) -> Path:
    """Return the git folder of a clone."""
    for name in (repository.replace("/", "+"), repository.split("/")[1]):
        for below in ("", ".git", "repo", "repo/.git"):
            if (sources / name / below / "HEAD").is_file():
                return sources / name / below
    raise SystemExit(f"There is no clone of {repository} in {sources}.")


def unpack(git: Path, commit: str, files: tuple[str, ...], folder: Path) -> None:
    """Write the files of a commit into a folder."""
    command = ["git", "-C", str(git), "archive", "--format=tar", commit, "--", *files]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


class Bench:
    """The folder of one pair: two checkouts, the times, and the run of perfwrap."""

    def __init__(self, pair: Pair, folder: Path, python: Path) -> None:
        self.pair, self.folder, self.python = pair, folder, python
        self.run_folder = folder / "run"

    def prepare(self, sources: Path) -> None:
        """Unpack both commits, each with the driver."""
        shutil.rmtree(self.folder, ignore_errors=True)
        git = git_folder(sources, self.pair.repository)
        for version in ("before", "after"):
            checkout = self.folder / version
            checkout.mkdir(parents=True)
            unpack(git, getattr(self.pair, version), self.pair.files, checkout)
            shutil.copy(self.pair.driver, checkout)
            shutil.copy(HERE / "small_images.py", checkout)
        for repository, commit in self.pair.needs:
            unpack(git_folder(sources, repository), commit, ("*.py",), self.folder / "needs")

    def start(self, version: str, *wrapper: str, stderr: int | IO[str]) -> subprocess.Popen[str]:
        """Start the driver in one of the checkouts."""
        checkout = self.folder / version
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        paths = f"{checkout / self.pair.path}:{self.folder / 'needs'}"
        variables = {**inherited, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [*wrapper, str(self.python), self.pair.driver.name],
            cwd=checkout,
            env={**variables, **dict(self.pair.environment)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def epoch_seconds(self, version: str) -> float | None:
        """Run a version and return the median time of an epoch, without the first; None if it failed."""
        ends = []
        with tempfile.TemporaryFile("w+") as errors, self.start(version, stderr=errors) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if EPOCH.match(line):
                    wall = self.pair.clock == "wall"
                    used = time.perf_counter() if wall else sum(psutil.Process(process.pid).cpu_times()[:4])
                    ends.append(used)
            if process.wait() or len(ends) < 3:
                errors.seek(0)
                print(f"{self.pair.name}, {version}: {errors.read()[-2000:]}", file=sys.stderr)
                return None
        return statistics.median(end - start for start, end in itertools.pairwise(ends))

    def measure(self, runs: int) -> tuple[float, float] | None:
        """Return the time of an epoch before and after; None if a run failed."""
        times: dict[str, list[float]] = {"before": [], "after": []}
        for _ in range(runs):
            for version, measured in times.items():
                seconds = self.epoch_seconds(version)
                if seconds is None:
                    return None
                measured.append(seconds)
        (self.folder / "times.json").write_text(json.dumps(times, indent=1))
        return statistics.median(times["before"]), statistics.median(times["after"])

    def kept_times(self) -> tuple[float, float] | None:
        """Return the times of an earlier run in this folder."""
        path = self.folder / "times.json"
        if not path.is_file():
            return None
        times = json.loads(path.read_text())
        return statistics.median(times["before"]), statistics.median(times["after"])

    def profile(self, *options: str) -> bool:
        """Record the version before the fix, with options of ``perfwrap run``; return whether it ran to its end."""
        command = [sys.executable, "-m", "perfwrap", "run", *options, "--out", str(self.run_folder), "--"]
        with (
            (self.folder / "report.txt").open("w") as report,
            self.start("before", *command, stderr=report) as process,
        ):
            process.communicate()
        return process.returncode == 0

    def diagnose_again(self) -> None:
        """Diagnose the kept run again."""
        command = [sys.executable, "-m", "perfwrap", "report", str(self.run_folder)]
        ended = subprocess.run(command, capture_output=True, text=True)
        (self.folder / "report.txt").write_text(ended.stdout, encoding="utf-8")

    def findings(self) -> list[dict[str, Any]] | None:
        """Return the findings of the run; None if it has no diagnosis."""
        path = self.run_folder / "diagnosis.json"
        if not path.is_file():
            return None
        findings: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["findings"]
        return [finding for finding in findings if finding["rule"] not in START]


def result_of(bench: Bench, ratio: float | None) -> tuple[str, str]:
    """Return the result of a pair, and what it predicts as text."""
    findings = bench.findings()
    if findings is None or (ratio is None and bench.pair.kind == CONTROL):
        return "failed", ""
    checkout = bench.folder / "before"
    saving = promised(findings, bench.pair.guilty, checkout)
    text = "none" if saving is None else f"{saving[0]:.0%} to {saving[1]:.0%}"
    if bench.pair.kind == CONTROL and ratio is not None:
        wrong = saving is not None and sum(saving) / 2 > 1 - 1 / ratio + LARGE
        return "wrong" if wrong else "right", text
    return judge(findings, bench.pair.guilty, checkout), text


def print_times(pair: Pair, times: tuple[float, float] | None) -> None:
    """Print the measured ratio of a pair."""
    text = f"{times[0]:.3f} s / {times[1]:.3f} s = {times[0] / times[1]:.2f}" if times else "failed"
    print(f"{pair.name} ({pair.kind}): {text}", flush=True)


def main() -> int:
    """Run the requested pairs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only pairs whose names contain one of these")
    parser.add_argument("--sources", type=Path, help="the folder of the git clones")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="runs the drivers")
    parser.add_argument("--runs", type=int, default=3, help="how often each version runs bare (3)")
    parser.add_argument("--recorded", action="store_true", help="use the ratios of fixes.toml")
    parser.add_argument("--times", action="store_true", help="only measure the ratios")
    parser.add_argument("--inspect", action="store_true", help="record the operations of six steps")
    parser.add_argument("--keep", type=Path, help="keep checkouts, times and runs in this folder")
    parser.add_argument("--again", type=Path, help="diagnose the runs kept in this folder again")
    arguments = parser.parse_args()
    if arguments.sources is None and arguments.again is None:
        parser.error("--sources DIR or --again KEPT is needed")
    if arguments.times and (arguments.again or arguments.recorded):
        parser.error("--times measures; it needs --sources, without --again or --recorded")
    counts: Counter[tuple[bool, str]] = Counter()
    if not arguments.times:
        print(
            "| pair | kind | faster | result | predicted saving | measured saving |\n|---|---|---|---|---|---|"
        )
    with tempfile.TemporaryDirectory() as temporary:
        base = (arguments.again or arguments.keep or Path(temporary)).absolute()
        for pair in read_pairs():
            if arguments.words and not any(word in pair.name for word in arguments.words):
                continue
            bench = Bench(pair, base / pair.name, arguments.python.absolute())
            if arguments.again:
                if not bench.run_folder.is_dir():
                    continue
                times = bench.kept_times()
                bench.diagnose_again()
            else:
                bench.prepare(arguments.sources.absolute())
                times = None if arguments.recorded else bench.measure(arguments.runs)
                if arguments.times:
                    print_times(pair, times)
                    counts[pair.held_out, "measured" if times else "failed"] += 1
                    continue
                if not bench.profile(*(["--inspect"] if arguments.inspect else [])):
                    print(f"{pair.name} failed: see {bench.folder / 'report.txt'}", file=sys.stderr)
                    counts[pair.held_out, "failed"] += 1
                    continue
            ratio = (
                times[0] / times[1]
                if times
                else pair.ratio
                if arguments.recorded or arguments.again
                else None
            )
            result, predicted = result_of(bench, ratio)
            counts[pair.held_out, result] += 1
            name = f"{pair.name} (held out)" if pair.held_out else pair.name
            shown = (f"{ratio:.2f} x", f"{1 - 1 / ratio:.0%}") if ratio else ("", "")
            print(f"| {name} | {pair.kind} | {shown[0]} | {result} | {predicted} | {shown[1]} |", flush=True)
    for held_out, title in ((False, "open"), (True, "held out")):
        found = [f"{count} {result}" for (kept, result), count in sorted(counts.items()) if kept == held_out]
        print(f"\n{title}: {', '.join(found) or 'none'}")
    return 0 if counts and not any(result in ("failed", "wrong") for _, result in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
