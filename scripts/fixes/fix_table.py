"""Compare what `perfwrap fix` gains with the same problem fixed by hand, and show what it makes of other programs.

    python scripts/fixes/fix_table.py                         all workloads with a fixed twin whose rule has an edit
    python scripts/fixes/fix_table.py gc_ worker              only those whose names contain one of the words
    python scripts/fixes/fix_table.py --healthy               the healthy workloads: none may get a patch
    python scripts/fixes/fix_table.py --sources DIR [NAME]    public programs of scripts/cost/programs.toml
    python scripts/fixes/fix_table.py --compare               compare results only, for a machine with other work
    python scripts/fixes/fix_table.py --keep DIR              keep the patches and fix.json in DIR
    python scripts/fixes/fix_table.py --python PATH           with another interpreter and its torch

For a workload, only the planted rule is searched. Its twin (see scripts/workloads/README.md) then runs in the same way,
as an overlay, in turns with the unchanged script. The last column is the gain of the patch as a share of the twin's
gain. Each patch is applied by `git apply` in a fresh repository, and the result must be the text that was measured. At
the end stand the figures with their targets. Everything runs with one compute thread, one program after the other; the
figures count on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfwrap import units
from perfwrap.commands.fix import SAMPLE_HZ
from perfwrap.commands.try_progress import TryProgress
from perfwrap.edits.files.patch_text import patch
from perfwrap.edits.files.source_reader import read_source
from perfwrap.experiments import judge, repeated_runs
from perfwrap.experiments.judge import Row
from perfwrap.experiments.plan import Planned
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.trial import Trial, watched
from perfwrap.experiments.variants import Variant
from perfwrap.fixing import edited_program
from perfwrap.fixing.candidates import BY_RULE, Candidate
from perfwrap.fixing.edited_program import Contents
from perfwrap.fixing.equality import WORDS
from perfwrap.fixing.search import Search
from perfwrap.launch import overlay_file
from perfwrap.reports import fix_document

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "accuracy"), str(HERE.parent / "fidelity")]

from bench import FIXED, Bench, Script  # noqa: E402
from fidelity import read_list  # noqa: E402
from labelled import HEALTHY, WORKLOADS, fixed_source, launcher_of, read_label, workloads  # noqa: E402
from savings import LOADERS  # noqa: E402

FOLDERS = (WORKLOADS, HERE.parent / "wasted_work" / "workloads")
EDITED = {*BY_RULE, *LOADERS, "slow_optimizer", "thread_oversubscription"}
"""The rules that have an edit."""
STEPS, TARGET, ENOUGH = 40, 0.9, 0.8
"""Steps of each run; the share of programs that must get a patch; the share of the gain by hand that it must reach."""


@dataclass(frozen=True)
class Outcome:
    """What was made of one program."""

    name: str
    search: Search
    patch: bytes
    twin: Row | None
    minutes: float

    @property
    def share(self) -> float | None:
        """The gain of the patch as a share of the twin's; None without one of them."""
        total, twin = self.search.total, self.twin
        if not self.patch or total is None or total.ratio is None or twin is None or twin.ratio is None:
            return None
        return (1 - total.ratio.value) / max(0.01, 1 - twin.ratio.value)


class Comparison(Search):
    """A search that times nothing."""

    def _measure(self, name: str, contents: Contents, one: Candidate) -> None:
        return None


def fix(
    command: list[str],
    folder: Path,
    rules: Sequence[str],
    seconds: float,
    twin: Contents | None,
    keep: Path | None,
) -> Outcome:
    """Search for edits of a command, as `perfwrap fix` does, and measure the twin in the same way."""
    began = time.monotonic()
    name = folder.name
    with TryProgress(sys.stderr) as progress:
        settings = Settings(STEPS, "auto", 0.02, 600.0, allow_writes=True)
        trial = Trial(command, folder, settings, progress, sample_hz=SAMPLE_HZ)
        written = watched(Path.cwd(), folder)
        search = (Search if seconds else Comparison)(trial, False, began + seconds, None)
        measured = None
        if trial.start():
            search.run(search.find(rules))
            if twin is not None and seconds:
                measured = measure(trial, twin, time.monotonic() + seconds / 2)
    content = patch(search.contents)
    if content:
        check_applies(search.contents, content)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name}.patch").write_bytes(content)
        document = fix_document.section(search, written(), content, Path.cwd())
        (keep / f"{name}.json").write_text(json.dumps(document, indent=1))
    return Outcome(name, search, content, measured, (time.monotonic() - began) / 60)


def measure(trial: Trial, contents: Contents, end_s: float) -> Row | None:
    """Return the measurement of files with other contents."""
    path = trial.folder / "twin.overlay"
    overlay_file.write(path, edited_program.overlay(contents))
    repeated_runs.measure(trial, [Planned(Variant("twin", path))], None, end_s)
    return next((row for row in judge.rows(trial.runs, trial.planned) if row.name == "twin"), None)


def check_applies(contents: Contents, content: bytes) -> None:
    """Apply the patch of one file in a new git repository; raises if it does not make the measured text."""
    for file, new in contents.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
            (folder / file.path.name).write_bytes(file.content)
            alone = patch({read_source(folder / file.path.name): new})
            subprocess.run(["git", "apply", "-"], input=alone, cwd=folder, check=True)
            if (folder / file.path.name).read_bytes() != new:
                raise AssertionError(f"The patch of {file.path} does not make the text that was measured.")
    if not content:
        raise AssertionError("The edits have no patch.")


def show(outcome: Outcome, with_twin: bool) -> None:
    """Print one row of the table."""
    search = outcome.search
    reading = search.trial.baseline.reading
    if reading.status != "measured":
        said, results = f"not measured: {reading.reason}", ""
    elif outcome.patch:
        kept = [one for one in search.tried if one.state == "kept"]
        said = " ".join(one.candidate.sentence for one in kept)
        results = ", ".join(sorted({WORDS[one.equality] for one in kept}))
    else:
        dropped = [f"{one.candidate.sentence} {one.reason}" for one in search.tried]
        results = ", ".join(sorted({WORDS[one.equality] for one in search.tried}))
        dropped += [one.sentence for one in search.unedited]
        said = (
            "; ".join(dropped) or f"nothing was found; not checked: {', '.join(search.unchecked) or 'none'}"
        )
    cells = [outcome.name, said, results, _ratio(search.total if outcome.patch else None)]
    if with_twin:
        share = outcome.share
        cells += [_ratio(outcome.twin), "" if share is None else f"{share:.0%}"]
    print("| " + " | ".join(cells) + f" | {outcome.minutes:.1f} min |", flush=True)


def _ratio(row: Row | None) -> str:
    if row is None or row.ratio is None:
        return ""
    return units.ratio(row.ratio.value, row.ratio.low, row.ratio.high)


def labelled(words: Sequence[str], healthy: bool, folder: Path) -> Iterator[Path]:
    """Return the workloads to fix, each written into the folder."""
    for source in FOLDERS:
        for script in workloads(folder, source) if healthy else sorted(source.glob("*.py")):
            expected = read_label(script).expected
            is_wanted = expected == HEALTHY if healthy else expected in EDITED
            if not is_wanted or words and not any(word in script.stem for word in words):
                continue
            if healthy or fixed_source(script.read_text(encoding="utf-8")) is not None:
                copy = folder / script.name
                if copy != script:
                    shutil.copyfile(script, copy)
                yield copy


def run_workloads(options: argparse.Namespace) -> int:
    """Fix the workloads and print the table; return 1 if a target is missed."""
    print(
        "| workload | edit | results | patch | by hand | share of the gain | |"
        if not options.healthy
        else "| healthy workload | | | patch | |"
    )
    print("|---|---|---|---|---|---|---|" if not options.healthy else "|---|---|---|---|---|")
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        (base / "scripts").mkdir()
        for script in labelled(options.words, options.healthy, base / "scripts"):
            rules = [] if options.healthy else [read_label(script).expected]
            command = [*(launcher_of(script) or [str(options.python)]), str(script)]
            twin = None
            if not options.healthy:
                file = read_source(script)
                twin = {file: (fixed_source(file.text) or "").encode()}
            folder = base / script.stem
            folder.mkdir()
            os.chdir(base / "scripts")
            outcome = fix(command, folder, rules, options.seconds, twin, options.keep)
            show(outcome, not options.healthy)
            outcomes.append(outcome)
            shutil.rmtree(folder)
    patched = [outcome for outcome in outcomes if outcome.patch]
    if options.healthy:
        print(f"\n{len(patched)} of {len(outcomes)} healthy workloads got a patch (target: 0).")
        return 1 if patched else 0
    edited = [outcome for outcome in outcomes if outcome.search.tried]
    reached = [outcome for outcome in patched if (outcome.share or 0) >= ENOUGH]
    print(
        f"\nOf {len(outcomes)} workloads {len(edited)} got an edit to try, {len(patched)} of them a proven patch "
        f"(target: {TARGET:.0%}), and {len(reached)} patches reach {ENOUGH:.0%} of the gain by hand."
    )
    return 0 if edited and len(reached) >= TARGET * len(edited) else 1


def run_programs(options: argparse.Namespace) -> int:
    """Fix public programs and print the table."""
    print("| program | edit | results | patch | |")
    print("|---|---|---|---|---|")
    for script in read_list(HERE.parent / "cost" / "programs.toml"):
        if options.words and not any(word in script.name for word in options.words):
            continue
        with tempfile.TemporaryDirectory() as name:
            run_program(script, Path(name), options)
    return 0


def run_program(script: Script, base: Path, options: argparse.Namespace) -> None:
    """Fix one public program in a copy of its folder."""
    bench = Bench(base, script, options.sources, options.python)
    folder = base / script.name.replace("/", "-")
    folder.mkdir()
    os.chdir(bench.pristine / bench.place)
    own_path = os.environ.get("PYTHONPATH", "")
    variables = bench._variables(False)
    os.environ.update(variables)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own_path, variables.get("PYTHONPATH", "")]))
    command = shlex.split(script.command)
    show(fix(command, folder, [], options.seconds, None, options.keep), False)


def main() -> int:
    """Run the programs and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--seconds", type=float, default=120.0, help="for the timed runs of each program")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.compare:
        options.seconds = 0.0
    if options.keep is not None:
        options.keep = options.keep.resolve()
    os.environ.update(FIXED)
    return run_programs(options) if options.sources else run_workloads(options)


if __name__ == "__main__":
    sys.exit(main())
