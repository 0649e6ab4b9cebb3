"""The edits that could fix the findings of a diagnosis: which edit, in which file, at which line."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfwrap import units
from perfwrap.edits import edit
from perfwrap.edits.files.notebook_file import SUFFIX, NotebookFile
from perfwrap.edits.files.source_file import SourceFile
from perfwrap.edits.files.source_reader import read_source
from perfwrap.edits.outcome import Edited, Refusal, Target, Value
from perfwrap.experiments.variants import JOINT, name_of, value_of
from perfwrap.rules.model import Finding, Location, Option
from perfwrap.timeline.notebook_cells import cell_name, cell_number, without_cell

LOG_EVERY, SAVE_EVERY = 50, 5
"""Rounds between two log lines and between two checkpoints."""
MOST_ITEMS = 100_000
"""Items that a cache keeps; the rule about unchanged items checks that all of them fit into memory."""

BY_RULE: dict[str, tuple[tuple[str, dict[str, Value]], ...]] = {
    "zero_grad_memset": (("zero_grad_option", {}),),
    "evaluation_with_grad": (("evaluation_mode", {}),),
    "host_sync_in_step": (
        ("summed_values", {}),
        ("kept_values", {}),
        ("last_value", {}),
        ("rare_logging", {"every": LOG_EVERY}),
    ),
    "logging_overhead": (("rare_logging", {"every": LOG_EVERY}), ("summed_values", {}), ("kept_values", {})),
    "checkpoint_stall": (("background_save", {}), ("checkpoint_interval", {"every": SAVE_EVERY})),
    "debug_mode_enabled": (("debug_calls", {}),),
    "empty_cache_in_step": (("cleanup_calls", {}),),
    "gc_pause": (("cleanup_calls", {}), ("frozen_garbage", {}), ("frozen_garbage", {"rare": True})),
    "repeated_backward": (("summed_backward", {}), ("retained_graph", {})),
    "unused_gradients": (("detached_fakes", {}), ("frozen_discriminator", {}), ("frozen_parameters", {})),
    "frozen_part_with_gradients": (("frozen_parameters", {}),),
    "synchronised_accumulation": (("accumulated_sync", {}),),
    "python_overhead": (("averaged_weights", {}), ("gathered_parts", {}), ("reused_copy", {})),
    "log_of_softmax": (("log_softmax_call", {}),),
    "unchanging_work": (
        ("hoisted_tensors", {}),
        ("buffered_tensors", {}),
        ("hoisted_calls", {}),
        ("kept_results", {}),
    ),
    "repeated_work": (("repeated_forward", {}), ("summed_backward", {}), ("kept_results", {})),
    "unused_work": (("sliced_head", {}),),
    "needless_weight_gradients": (("frozen_discriminator", {}), ("detached_fakes", {})),
    "loop_of_small_operations": (("averaged_weights", {}), ("gathered_parts", {}), ("mapped_loop", {})),
    "loop_in_model": (("mapped_loop", {}),),
    "distribution_checks": (("unchecked_distribution", {}),),
}
"""The edits of each rule at the line of its finding, and their values; the first that applies is used."""

FIRST_OF_SEVERAL = ("loader_options", "cached_items", "background_save", "frozen_garbage")
"""Edits after which the others for the same finding are tried, too."""
NO_EDIT = "There is no edit for this finding."
MIN_GAIN = 0.03
"""The part of a step from which a finding without an edit leaves something to gain."""
PAPERMILL = "papermill"
"""The command that runs a notebook from any folder in the present one."""
FREEZE, PARAMETERS = "frozen_garbage", "frozen_parameters"
THREADS = "threads"
LOADER_ARGUMENTS = {
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "persistent-workers": "persistent_workers",
    "pin-memory": "pin_memory",
}
WITHOUT_WORKERS, MIN_SHARE_TO_TRY, MOST_TRIED = "data_loader_single_process", 0.05, 4
"""The rule about DataLoaders without workers, the share of the loop from which workers are tried that it does not
advise, and how many at most: one for each core."""
CACHE = "Cache the items"
"""The beginning of the option to keep the items of a data set."""
THREAD_OPTION = re.compile(r"threads=\d+")
THREAD_CALL = re.compile(r"\bset_num_threads\s*\(")
OPTIMIZER = re.compile(r"\b(?:Adam\w*|SGD|Adagrad|NAdam|RAdam|RMSprop|Adadelta|ASGD|Rprop|Adafactor)\s*\(")

OTHER_RANDOM_NUMBERS = frozenset({"loader_options"})
"""Edits after which random transforms may draw other numbers: each worker has its own generator."""


class Candidate(Struct, frozen=True):
    """An edit that may fix a finding; ``path`` is a file of the program."""

    rule: str
    edit: str
    path: Path
    target: Target
    sentence: str
    """What it changes, in one sentence."""
    predicted: tuple[float, float]
    more: tuple[tuple[str, Target], ...] = ()
    """Edits of the same file that belong to it, by name."""
    location: Location | None = None
    """The line as a report names it, where that is not the path and line: in a cell of a notebook."""

    @property
    def place(self) -> Location:
        """The line as a report names it."""
        return self.location or Location(str(self.path), self.target.line)

    @property
    def random_numbers(self) -> bool:
        """Whether random transforms may draw other numbers after it."""
        return self.edit in OTHER_RANDOM_NUMBERS

    @property
    def keeps_workers(self) -> bool:
        """Whether only the lives of workers change: the program itself then draws fewer numbers, one for each start."""
        return self.random_numbers and set(self.target.values) == {"persistent_workers"}


class Loader(Struct, frozen=True):
    """A DataLoader of the training: the line that creates it, and the arguments that it had."""

    file: str
    line: int
    seen: Mapping[str, Value] = {}
    epochs: int = 1
    may_have_workers: bool = True
    """Whether its process may start others: a daemon may not."""


class Unedited(Struct, frozen=True):
    """A finding that no edit fixes, and why."""

    rule: str
    reason: str
    """Why the edits for it refused; NO_EDIT if there is none for such findings."""
    location: Location | None = None
    saving: tuple[float, float] = (1.0, 1.0)
    """The predicted ratio of step times if it is fixed by hand, best case first."""
    advice: str = ""
    """What to change by hand."""

    @property
    def gains(self) -> bool:
        """Whether a step may become so much faster that it counts."""
        return self.saving[0] <= 1.0 - MIN_GAIN

    @property
    def sentence(self) -> str:
        """The finding, what it would gain, why it has no edit, and what to do by hand."""
        where = f" at {self.location}" if self.location is not None else ""
        gain = f" (a step would take {units.ratio(self.saving[0])} of its time at best)" if self.gains else ""
        why = "." if self.reason == NO_EDIT else f": {self.reason}"
        by_hand = f" By hand: {self.advice}" if self.advice else ""
        return f"The finding {self.rule}{where}{gain} has no automatic edit{why}{by_hand}"


def find(
    findings: Sequence[Finding],
    loaders: Sequence[Loader],
    words: Sequence[str],
    cells: Mapping[str, str] = {},
    loop: tuple[str, int] | None = None,
) -> tuple[list[Candidate], list[Unedited]]:
    """Return the edits for these findings, and why others have none.

    ``loaders`` are the DataLoaders of the training, ``words`` those of the command, ``cells`` the texts of the cells of
    notebooks by the names that findings have for them, ``loop`` a line of the training loop.
    """
    found: dict[tuple[object, ...], Candidate] = {}
    unedited = []
    for finding in findings:
        if finding.informational:
            continue
        own, reasons = _of(finding, loaders, tuple(words), cells, loop)
        for one in own:
            found.setdefault((one.edit, one.path, one.target.line, str(one.target.values)), one)
        if not own:
            unedited.append(
                Unedited(
                    finding.rule,
                    " ".join(dict.fromkeys(reasons)) or NO_EDIT,
                    finding.location,
                    finding.saving,
                    finding.advice,
                )
            )
    return list(found.values()), unedited


def _of(
    finding: Finding,
    loaders: Sequence[Loader],
    words: tuple[str, ...],
    cells: Mapping[str, str],
    loop: tuple[str, int] | None,
) -> tuple[list[Candidate], list[str]]:
    """Return the candidates of one finding, and why the edits refused that could be for it."""
    candidates, reasons = [], []
    for option, name, values, places in _wanted(finding, loaders, words, loop):
        refused = []
        for file, line in places:
            seen = next((one.seen for one in loaders if (one.file, one.line) == (file, line)), {})
            try:
                path, line = _in_file(file, line, cells)
                if path.suffix == SUFFIX and not any(Path(word).name == PAPERMILL for word in words):
                    raise Refusal(f"Only {PAPERMILL} can run a copy of {path.name} in place of it.")
                target = Target(line, values, words, seen)
                source = read_source(path)
                done = edit(name, source.text, target)
            except Refusal as refusal:
                refused.append(refusal.reason)
                continue
            if isinstance(done, Edited):
                sentence, threads = done.sentence, _threads(option)
                more: tuple[tuple[str, Target], ...] = ()
                if name == "loader_options" and threads:
                    more = (("thread_count", Target(line, {"threads": threads}, words)),)
                    sentence += f" Call torch.set_num_threads({threads}) before it."
                if name == "optimizer_options":
                    rest = _others(path, places, target)
                    more = tuple((name, other) for other, _ in rest)
                    sentence = " ".join([sentence, *(said for _, said in rest)])
                candidates.append(
                    _candidate(finding.rule, name, source, path, target, sentence, option, more)
                )
                break
            if not done.is_elsewhere:
                refused.append(done.reason)
        reasons += refused[-1:]
        if candidates and name not in FIRST_OF_SEVERAL:
            break
    return candidates, reasons


def _candidate(
    rule: str,
    name: str,
    source: SourceFile,
    path: Path,
    target: Target,
    sentence: str,
    option: Option,
    more: tuple[tuple[str, Target], ...],
) -> Candidate:
    """Return a candidate; of a notebook it names cells and their lines."""
    location = None
    if isinstance(source, NotebookFile):
        cell, line = source.place(target.line)
        location, sentence = Location(cell_name(str(path), cell), line), source.in_words(sentence)
    return Candidate(rule, name, path, target, sentence, option.saving, more, location)


def _in_file(file: str, line: int, cells: Mapping[str, str]) -> tuple[Path, int]:
    """Return the file and line of a location, also of one in a cell of a notebook; raises Refusal."""
    path = own_file(without_cell(file))
    if cell_number(file) is None:
        return path, line
    source = read_source(path)
    if not isinstance(source, NotebookFile) or file not in cells:
        raise Refusal(f"{file} is not known with its text.")
    return path, source.line_in_text(cells[file], line)


def _wanted(
    finding: Finding,
    loaders: Sequence[Loader],
    words: tuple[str, ...],
    loop: tuple[str, int] | None,
) -> Iterator[tuple[Option, str, Mapping[str, Value], list[tuple[str, int]]]]:
    """Return for each edit to try: the option it carries out, its name, its values, and the places, best first."""
    here = [(finding.problem.file, finding.problem.line)] if finding.problem is not None else []
    created = [_place(loader) for loader in loaders]
    for option in finding.options:
        values = _loader_values(option)
        if values:
            yield option, "loader_options", values, [*here, *created]
        if option.edit.startswith(CACHE):
            yield option, "cached_items", {"most_items": MOST_ITEMS}, created
        if THREAD_OPTION.fullmatch(option.experiment or ""):
            yield option, "thread_count", {"threads": _threads(option)}, _lines_with(THREAD_CALL, words)
    if finding.rule == WITHOUT_WORKERS and not any(map(_loader_values, finding.options)):
        # No gain is certain, so the diagnosis advises none: the runs tell.
        for loader in loaders:
            if loader.may_have_workers and finding.share >= MIN_SHARE_TO_TRY and here == [_place(loader)]:
                trial: dict[str, Value] = {
                    "num_workers": max(1, min(MOST_TRIED, len(os.sched_getaffinity(0))))
                }
                if loader.epochs > 1:
                    trial["persistent_workers"] = True
                yield finding.options[0], "loader_options", trial, here
    trained_in = [without_cell(loop[0])] if loop is not None else []
    if finding.rule == "slow_optimizer" and finding.location is not None:
        # The location of a copied class is its own file.
        files = [*trained_in, without_cell(finding.location.file)]
        made = _lines_with(OPTIMIZER, list(dict.fromkeys(files)))
        for keyword in ("fused", "foreach"):
            yield finding.options[0], "optimizer_options", {keyword: True}, made
        yield finding.options[0], "library_optimizer", {}, made
    for name, values in BY_RULE.get(finding.rule, ()):
        places = here
        if name == PARAMETERS:
            places = _lines_with(OPTIMIZER, list(dict.fromkeys([*words, *trained_in])))
        elif name == FREEZE and loop is not None and not here:
            # What runs by itself, such as garbage collection, has no line of its own.
            places = [loop]
        yield finding.options[0], name, values, places


def _place(loader: Loader) -> tuple[str, int]:
    return loader.file, loader.line


def _loader_values(option: Option) -> dict[str, Value]:
    """Return the arguments of the DataLoader that an option's experiment sets; none if it sets anything else."""
    changes = [change for change in (option.experiment or "").split(JOINT) if name_of(change) != THREADS]
    if not changes or not all(name_of(change) in LOADER_ARGUMENTS for change in changes):
        return {}
    values: dict[str, Value] = {
        LOADER_ARGUMENTS[name_of(change)]: int(value_of(change)) if value_of(change) else True
        for change in changes
    }
    if values.get("num_workers") and "persistent_workers=True" in option.edit:
        values["persistent_workers"] = True
    return values


def _threads(option: Option) -> int:
    """Return the number of compute threads that an option's experiment sets, 0 if it sets none."""
    changes = (option.experiment or "").split(JOINT)
    return next((int(value_of(change)) for change in changes if name_of(change) == THREADS), 0)


def _lines_with(pattern: re.Pattern[str], names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the lines of these files that match; names of other things than files of the program count as nothing."""
    found = []
    for name in names:
        try:
            lines = read_source(own_file(name)).text.splitlines()
        except Refusal:
            continue
        found += [(name, number) for number, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def _others(path: Path, places: Sequence[tuple[str, int]], done: Target) -> list[tuple[Target, str]]:
    """Return the other optimizers of a file that take the same argument, e.g. of a GAN, and what changes."""
    text = read_source(path).text
    targets = [replace(done, line=line) for _, line in places if line > done.line]
    edits = [(target, edit("optimizer_options", text, target)) for target in targets]
    return [(target, found.sentence) for target, found in edits if isinstance(found, Edited)]


def own_file(name: str) -> Path:
    """Return a file of the program; raises Refusal for code of libraries and for code without a file."""
    path = Path(name)
    if path.suffix not in (".py", ".ipynb") or not path.is_file():
        raise Refusal(f"{path.name or name} is neither a Python file nor a notebook of this machine.")
    real = path.resolve()
    libraries = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")]
    if {"site-packages", "dist-packages"} & set(real.parts) or any(
        real.is_relative_to(folder) for folder in libraries
    ):
        raise Refusal(f"{path.name} belongs to a library: change how the program calls it.")
    return path
