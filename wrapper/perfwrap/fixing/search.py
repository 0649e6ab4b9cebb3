"""Proves edits one by one and together: each runs in place of the original, and keeps what is faster and the same."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from perfwrap import units
from perfwrap.diagnosis.engine import diagnose
from perfwrap.edits.outcome import Refusal, Value
from perfwrap.experiments import judge, repeated_runs
from perfwrap.experiments.judge import Row
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import read_timeline
from perfwrap.experiments.runner import Ended, Settings, run_once
from perfwrap.experiments.trial import Trial
from perfwrap.experiments.variants import Variant
from perfwrap.fixing import candidates, edited_program, equality
from perfwrap.fixing.candidates import Candidate, Loader, Unedited
from perfwrap.fixing.edited_program import Contents
from perfwrap.fixing.equality import Equality, Items, StepValues
from perfwrap.launch import overlay_file
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules import RULES
from perfwrap.rules.model import MIN_REPORTED_SHARE, Finding
from perfwrap.run_folder import RunFolder
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import SOURCES

CHECK_STEPS = 20
"""The first steps, whose losses and parameters are compared."""
SEED = 0
MOST_BOUNDS = 4
"""Runs of the unchanged program with perturbed parameters, and with another seed, that a deviation is compared with."""
COMPUTE_BOUND = "compute-bound"
INSPECTED = frozenset(rule.__name__.rpartition(".")[2] for rule in RULES if "operations" in rule.NEEDS)
"""The rules that only an inspection can check."""
LOG = "edited.log"
MEMORY_FACTOR, FREE_BYTES = 1.5, 1 << 30
"""An edit may need so many times the memory; a gibibyte more is always free: each worker needs some for itself."""
CACHE = "cached_items"
"""The edit that must not meet random items: the first steps do not show it, since they repeat none."""
STOPPED = "the search was interrupted before it was measured"

State = Literal["kept", "dropped"]


class Tried(Struct, frozen=True):
    """The result of one candidate; ``reason`` says why it was dropped, or with what it was measured."""

    candidate: Candidate
    number: int
    state: State
    reason: str
    equality: Equality = "unknown"
    deviation: float = math.nan
    row: Row | None = None
    """Its measurement alone."""
    contents: Contents = {}
    """The files with this edit alone, as they were compared and measured."""


@dataclass
class Search:
    """The search for edits of one command; ``run`` fills the results in."""

    trial: Trial
    allow_numerics: bool
    end_s: float
    repeats: int | None = None
    most_memory: float = MEMORY_FACTOR
    """The limit of peak memory, as a multiple of the original's."""
    tried: list[Tried] = field(default_factory=list)
    unedited: list[Unedited] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    """The rules among those that the user asked for which could not be checked."""
    kept: list[Candidate] = field(default_factory=list)
    contents: Contents = field(default_factory=dict)
    """The files with all edits that were kept."""
    total: Row | None = None
    """The measurement of all edits that were kept together."""
    _values: dict[str, list[StepValues]] = field(default_factory=dict)
    _draws: dict[str, int] = field(default_factory=dict)
    _peaks: dict[str, int | None] = field(default_factory=dict)
    _items: Items = ""
    _checks: int = 0

    def find(self, only: Sequence[str]) -> list[Candidate]:
        """Return the candidates for the findings of the baseline, and of an inspection if its own work dominates.

        It is also inspected if one of the rules in ``only`` needs that.
        """
        diagnosis = self.trial.diagnosis
        findings = list(diagnosis.findings) if diagnosis is not None else []
        if diagnosis is not None and (diagnosis.verdict.id == COMPUTE_BOUND or INSPECTED & set(only)):
            findings += self._inspected()
        if diagnosis is not None and only:
            unchecked = {one.rule for one in diagnosis.outcomes if one.state == "not checked"}
            self.unchecked = sorted((unchecked & set(only)) - {one.rule for one in findings})
        wanted = [one for one in findings if not only or one.rule in only]
        timeline = read_timeline(RunFolder(self.trial.baseline.folder / "run"))
        loaders: list[Loader] = []
        if timeline is not None:
            evidence = Evidence(timeline)
            main = evidence.get(find_main_trainer)
            uses = evidence.get(find_loaders, main) if main is not None else ()
            loaders = [
                Loader(use.created.file, use.created.line, _arguments_of(use), use.epochs, not use.of_daemon)
                for use in uses
                if use.training and use.created is not None
            ]
        cells = timeline.run.get(SOURCES) or {} if timeline is not None else {}
        found, self.unedited = candidates.find(
            wanted, loaders, self.trial.command, cells, _loop_of(timeline) if timeline is not None else None
        )
        return found

    def run(self, found: Sequence[Candidate]) -> None:
        """Prove each candidate alone, then those that gain together.

        After an interrupt, the best of the edits that were proven alone is kept: it needs no more runs.
        """
        try:
            for number, one in enumerate(found, 1):
                if self.trial.interrupted:
                    break
                self.trial.progress.says(f"edit {number} of {len(found)}: {one.sentence}")
                self.tried.append(self._prove(one, number))
        except KeyboardInterrupt:
            self.trial.interrupted = True
        for gain in sorted((one for one in self.tried if one.state == "kept"), key=_ratio):
            try:
                reason = self._add(gain)
            except KeyboardInterrupt:
                self.trial.interrupted = True
                reason = STOPPED
            if reason:
                dropped = replace(gain, state="dropped", reason=reason)
                self.tried = [dropped if each is gain else each for each in self.tried]

    def _inspected(self) -> list[Finding]:
        """Return what an inspection of the program finds; nothing if it cannot be inspected."""
        self.trial.progress.says("the model's own operations are inspected")
        settings = replace(self.trial.settings, warm_up="auto", precision=0.0, inspect=True)
        timeline = read_timeline(self._run("inspect", settings).run)
        if timeline is None:
            return []
        known = {one.rule for one in self.trial.diagnosis.findings} if self.trial.diagnosis else set()
        return [one for one in diagnose(timeline).findings if one.rule not in known]

    def _prove(self, one: Candidate, number: int) -> Tried:
        """Return whether a candidate alone computes the same and is faster."""
        try:
            contents = edited_program.make([one])
        except Refusal as refusal:
            return Tried(one, number, "dropped", refusal.reason)
        name = f"edit{number}"
        same, apart, reason = self._compare(name, contents, one.random_numbers, one.keeps_workers)
        if not reason and one.edit == CACHE and self._items == "random":
            reason = "the data set draws random numbers for its items"
        if reason:
            return Tried(one, number, "dropped", reason, same, apart)
        row = self._measure(name, contents, one)
        reason = self._why_not(row)
        return Tried(one, number, "dropped" if reason else "kept", reason, same, apart, row, contents)

    def _add(self, one: Tried) -> str:
        """Add a proven candidate to those that are kept; return why not, if they do not gain together."""
        if not self.kept or self.total is None or self.total.ratio is None:
            self.kept, self.total, self.contents = [one.candidate], one.row, one.contents
            return ""
        if self.trial.interrupted:
            return STOPPED
        together = [*self.kept, one.candidate]
        name = "edits" + "+".join(
            str(tried.number) for tried in self.tried if any(tried.candidate is each for each in together)
        )
        try:
            contents = edited_program.make(together)
            _, _, reason = self._compare(
                name,
                contents,
                any(each.random_numbers for each in together),
                any(each.keeps_workers for each in together),
            )
        except Refusal as refusal:
            return refusal.reason
        if reason:
            return reason
        row = self._measure(name, contents, one.candidate)
        if reason := self._why_not(row):
            return reason
        if (
            row is None
            or row.ratio is None
            or row.ratio.value > (1 - MIN_REPORTED_SHARE) * self.total.ratio.value
        ):
            return "it gains nothing beside the other edits"
        self.kept, self.total, self.contents = together, row, contents
        return ""

    def _compare(
        self, name: str, contents: Contents, random: bool, keeps_workers: bool
    ) -> tuple[Equality, float, str]:
        """Return whether edited files compute the same, the largest deviation, and why they are not kept.

        Other random numbers count as the same if the data set draws them, or if workers only live longer.
        """
        original = self._values_of("original")
        if len(original) < equality.MIN_STEPS:
            return "unknown", math.nan, "the losses and parameters of the program could not be read"
        ended = self._run(f"check-{name}", self._check(SEED), self._overlay(name, contents))
        is_run = any(file.path.suffix == ".py" for file in contents)
        if is_run and not (ended.run.path / LOG).is_file():
            return "unknown", math.nan, "the program did not run the edited file"
        if reason := self.memory_reason("memory", self._peaks.get("original"), ended.peak_bytes):
            return "unknown", math.nan, reason
        timeline = read_timeline(ended.run)
        edited = equality.read(timeline)
        if len(edited) < min(len(original), CHECK_STEPS):
            return "unknown", math.nan, "the edited program failed or made fewer steps"
        if equality.is_identical(original, edited):
            # Without the comparison, the program would not draw the same numbers.
            is_same = equality.draws_of(timeline) == self._draws["original"]
            return "identical" if is_same else "other random numbers", 0.0, ""
        again = self._values_of("again")
        if not equality.is_repeatable(original, again):
            return (
                "unknown",
                math.nan,
                "the program computes something else in each run, also with equal seeds",
            )
        # With other random numbers, the bound of another seed is wider than that of any rounding.
        others = random and (self._items != "fixed" or keeps_workers)
        name = "seed" if others else "perturbed"
        runs = ["again", *([] if others else ["threads"])]
        runs += [f"{name}{number}" for number in range(1, MOST_BOUNDS + 1)]
        for count in range(1, len(runs) + 1):
            within, apart = equality.compare(original, edited, *map(self._values_of, runs[:count]))
            if within:
                return "other random numbers" if others and count > 1 else "rounding", apart, ""
        reason = "" if self.allow_numerics else "it changes the training (to keep it: --allow-numerics)"
        return "changes the training", apart, reason

    def _values_of(self, which: str) -> list[StepValues]:
        """Return the values of the unchanged program: once more, with other threads, perturbed, or with another seed.

        The last two end with the number of the run.
        """
        if which not in self._values:
            word = which.rstrip("0123456789")
            number = int(which[len(word) :] or 0)
            settings = self._check(number if word == "seed" else SEED)
            if word == "perturbed":
                settings = replace(settings, perturbation=number)
            changes = (f"threads={_other_threads()}",) if which == "threads" else ()
            ended = self._run(f"check-{which}", settings, None, changes)
            timeline = read_timeline(ended.run)
            self._peaks[which] = ended.peak_bytes
            self._values[which], self._draws[which] = equality.read(timeline), equality.draws_of(timeline)
            if which == "original":
                self._items = equality.items_of(timeline)
        return self._values[which]

    def _check(self, seed: int) -> Settings:
        return replace(self.trial.settings, steps=CHECK_STEPS, warm_up="0", precision=0.0, values_seed=seed)

    def _overlay(self, name: str, contents: Contents) -> Path:
        path = self.trial.folder / f"{name}.overlay"
        overlay_file.write(path, edited_program.overlay(contents))
        return path

    def _run(
        self, name: str, settings: Settings, overlay: Path | None = None, changes: tuple[str, ...] = ()
    ) -> Ended:
        """Run the command once, untimed, and return how it ended; KeyboardInterrupt if the user interrupts."""
        self._checks += 1
        folder = self.trial.folder / f"{name}-{self._checks:02}"
        self.trial.progress.begins(name, self._checks)
        ended = run_once(
            self.trial.command,
            changes,
            folder,
            replace(settings, overlay=overlay),
            self.trial.progress.ticks,
            settings.timeout_s,
        )
        self.trial.progress.stops()
        if ended.how == "interrupted":
            raise KeyboardInterrupt
        return ended

    def _measure(self, name: str, contents: Contents, one: Candidate) -> Row | None:
        """Return the measurement of edited files, in turns with the baseline."""
        planned = Planned(Variant(name, self._overlay(name, contents)), one.rule, one.predicted)
        repeated_runs.measure(self.trial, [planned], self.repeats, self.end_s)
        rows = judge.rows(self.trial.runs, self.trial.planned)
        return next((row for row in rows if row.name == name), None)

    def memory_reason(self, what: str, before: float | None, after: float | None) -> str:
        """Return why a peak of memory (bytes) is too large; nothing if it is not, or if one of both is unknown."""
        if not before or not after or after <= max(self.most_memory * before, before + FREE_BYTES):
            return ""
        return (
            f"its peak {what} is {units.size(after)}, the original's {units.size(before)}: more than "
            f"{units.number(self.most_memory, 3)} times (--max-memory)"
        )

    def _why_not(self, row: Row | None) -> str:
        """Return why a measured edit is not kept; nothing for a gain."""
        if row is not None and row.judgement == "gain":
            before = [run.reading.peak_bytes or 0.0 for run in self.trial.runs if run.name == BASELINE]
            return self.memory_reason("GPU memory", max(before, default=0.0), row.peak_bytes)
        if self.trial.interrupted:
            return STOPPED
        if row is None:
            return "it was not measured"
        if row.status != "measured":
            return f"the edited program {row.status}: {row.reason}"
        return {
            "slower": "it is slower",
            "noise": "no gain beyond the noise of this machine",
            "not repeated": "it was measured only once (--repeats, --max-time)",
        }.get(row.judgement, "it was not measured")


def _loop_of(timeline: Timeline) -> tuple[str, int] | None:
    """Return the line of most backward passes, which is in the training loop or in what that calls."""
    passes = timeline.spans.filter(pl.col("operation") == "backward", pl.col("file").is_not_null())
    lines = passes.group_by("file", "line").len().sort("len", descending=True)
    return (str(lines["file"][0]), int(lines["line"][0])) if lines.height else None


def _arguments_of(use: LoaderUse) -> dict[str, Value]:
    """Return the arguments that a DataLoader had, as far as they are known."""
    known = {
        "num_workers": use.workers,
        "batch_size": use.batch_size,
        "pin_memory": use.pin_memory,
        "prefetch_factor": use.prefetch_factor,
        "persistent_workers": use.persistent_workers,
    }
    return {keyword: value for keyword, value in known.items() if value is not None}


def _ratio(one: Tried) -> float:
    return one.row.ratio.value if one.row is not None and one.row.ratio is not None else math.inf


def _other_threads() -> int:
    """Return a number of threads that the program does not have: rounding depends on it."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(given) if given.isdecimal() else len(os.sched_getaffinity(0))
    return 1 if threads > 1 else 2
