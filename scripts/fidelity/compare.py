"""Finds what is the same in two bare runs and different in a wrapped one: texts, files and notes. For fidelity.py.

Differences between the bare runs are not counted: such a number is masked, such a file or stream is called unsteady.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

SAME, DIFFERENT, UNSTEADY, NOTHING = "same", "different", "bare runs differ", "nothing"

NUMBER = re.compile(
    r"0x[0-9a-f]+|(?<![\w.])[-+]?(?:\d+(?:[.,:_]\d+)*|\.\d+)(?:e[-+]?\d+)?(?=[a-zµ%]{0,3}(?![\w]))"
)
"""A number, a time of day or an address, with or without a short unit after it; digits in names are not numbers."""
TEMPORARY = re.compile(r"\btmp[a-z0-9_]{8}\b")
"""The names of files that Python's tempfile makes."""
EVENTS = re.compile(r"(?<=\.tfevents\.).*")
"""The part that TensorBoard adds to the names of its files: time, host and process."""
LINES = re.compile(r"\r\n|\r|\n")
OWN_MODULES = ("perfwrap_recorder", "<perfwrap:")
RECORDER_IMPORTS = frozenset({"resource"})
"""Modules of Python's own that only the recorder may import in a process with torch."""
WEIGHTS = {".bin", ".ckpt", ".npz", ".pt", ".pth", ".safetensors", ".tar"}
TENSORS = re.compile(r"/data/\d+$")
"""The place of the tensors' data in an archive of torch.save."""
SHOWN = 200
"""Characters of a differing line that are shown."""


@dataclass(frozen=True)
class Outcome:
    """The result of one comparison: how much was compared, how much was masked, and where it differs."""

    status: str
    compared: int = 0
    masked: int = 0
    where: str = ""
    unsteady: tuple[str, ...] = ()
    """The differences between the bare runs."""


def split(line: str) -> tuple[str, tuple[str, ...]]:
    """Return a line without its numbers, and the numbers."""
    line = TEMPORARY.sub("tmp", line)
    return " ".join(NUMBER.sub("#", line).split()), tuple(NUMBER.findall(line))


def compare_text(bare: Sequence[str], wrapped: str, ordered: bool = True) -> Outcome:
    """Compare a wrapped run's text with those of the bare runs; numbers that differ between these are masked.

    A number is masked in all lines that are equal except for their numbers, so a time that was equal by chance is too.
    """
    texts = [_lines(text, ordered) for text in (*bare, wrapped)]
    shapes = [[shape for shape, _ in text] for text in texts]
    first, last = texts[0], texts[-1]
    if any(shape != shapes[0] for shape in shapes[1:-1]):
        return Outcome(UNSTEADY, 0, len(first), unsteady=tuple(_odd(shapes[0], shapes[1])))
    masked = {
        (shape, place)
        for other in texts[1:-1]
        for (shape, numbers), (_, others) in zip(first, other, strict=True)
        for place, (one, two) in enumerate(zip(numbers, others, strict=True))
        if one != two
    }
    hidden = sum((shape, place) in masked for shape, numbers in first for place in range(len(numbers)))
    compared = sum(len(numbers) for _, numbers in first) - hidden
    for number, (one, two) in enumerate(zip_longest(first, last), 1):
        if one is None or two is None or _without(one, masked) != _without(two, masked):
            return Outcome(DIFFERENT, compared, hidden, f"line {number}: {_shown(one)} became {_shown(two)}")
    unsteady = tuple(sorted({shape for shape, _ in masked}))
    return Outcome(SAME if first else NOTHING, compared, hidden, unsteady=unsteady)


def _lines(text: str, ordered: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Return each line with text, split; sorted if processes write in any order."""
    lines = [split(line) for line in LINES.split(text) if line.strip()]
    return lines if ordered else sorted(lines)


def _without(line: tuple[str, tuple[str, ...]], masked: set[tuple[str, int]]) -> tuple[str, tuple[str, ...]]:
    shape, numbers = line
    return shape, tuple("" if (shape, place) in masked else number for place, number in enumerate(numbers))


def _shown(line: tuple[str, tuple[str, ...]] | None) -> str:
    if line is None:
        return "nothing"
    numbers = iter(line[1])
    return repr(re.sub("#", lambda _: next(numbers, "#"), line[0])[:SHOWN])


def _odd(one: Iterable[str], two: Iterable[str]) -> list[str]:
    """Return the lines that one text has more often than the other, or a note that only the order differs."""
    odd = (Counter(one) - Counter(two)) + (Counter(two) - Counter(one))
    return sorted(odd)[:5] or ["the order of the lines"]


def files_in(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder, by relative path; byte code is left out.

    TensorBoard's files get one common name, because their own names contain the time.
    """
    digests: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and ".git" not in path.parts:
            name = EVENTS.sub("...", str(path.relative_to(folder)))
            digests[name] = digests.get(name, "") + _digest(path.read_bytes())
    return digests


def weights_in(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return, for files of weights that torch.save wrote, the digest of their tensors alone, in order."""
    digests = {}
    for name in names:
        path = folder / name
        if path.suffix in WEIGHTS and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                tensors = [entry for entry in archive.namelist() if TENSORS.search(entry)]
                digests[name] = _digest(b"".join(archive.read(entry) for entry in tensors))
    return digests


def compare_files(
    before: Mapping[str, str], bare: Sequence[Mapping[str, str]], wrapped: Mapping[str, str]
) -> Outcome:
    """Compare the files that a wrapped run left with those of the bare runs, bit for bit."""
    names = sorted({name for files in (*bare, wrapped, before) for name in files})
    written = [
        name for name in names if any(files.get(name) != before.get(name) for files in (*bare, wrapped))
    ]
    steady = [name for name in written if all(files.get(name) == bare[0].get(name) for files in bare)]
    unsteady = tuple(name for name in written if name not in steady)
    for name in steady:
        if wrapped.get(name) != bare[0].get(name):
            return Outcome(DIFFERENT, len(steady), len(unsteady), name, unsteady)
    missing = [
        name
        for name in unsteady
        if (name in wrapped) != (name in bare[0]) and (name in wrapped) != (name in bare[-1])
    ]
    if missing:
        return Outcome(DIFFERENT, len(steady), len(unsteady), f"{missing[0]}, there or not there", unsteady)
    status = SAME if steady else UNSTEADY if unsteady else NOTHING
    return Outcome(status, len(steady), len(unsteady), "", unsteady)


@dataclass(frozen=True)
class Notes:
    """The observer's notes about all processes of a run, in a fixed order."""

    notes: list[dict[str, Any]] = field(default_factory=list)

    def of(self, *keys: str) -> list[tuple[str, str]]:
        """Return the notes with these keys, by process; a generator's state has its own name."""
        noted = [(key, note[key]) for note in sorted(self.notes, key=_who) for key in keys]
        return [
            (key if part is None else f"{part}'s {key} state", str(value))
            for key, values in noted
            for part, value in (values.items() if isinstance(values, dict) else [(None, values)])
        ]

    def imports(self) -> list[list[str]]:
        """Return the modules of each process in the order of their import, without the recorder's own."""
        return [
            [name for name in note["modules"] if not name.startswith(OWN_MODULES)]
            for note in sorted(self.notes, key=_who)
        ]

    @property
    def steps(self) -> int:
        """The steps of all optimizers in processes that ended normally."""
        return sum(note["steps"] for note in self.notes)


def _who(note: Mapping[str, Any]) -> tuple[str, str, str, int, str]:
    """Return the identity of a process, without its pid and other parts that change from run to run.

    Workers of one kind differ in their random states alone: without these, their order is one of chance.
    """
    words = split(" ".join(note["argv"]))[0]
    return str(note["rank"]), words, note["weights"], len(note["modules"]), str(note["random"])


def compare_notes(bare: Sequence[Notes], wrapped: Notes, *keys: str) -> Outcome:
    """Compare the notes about the wrapped run with those about the bare runs, as far as these agree."""
    noted = [notes.of(*keys) for notes in (*bare, wrapped)]
    first, last = noted[0], noted[-1]
    if any(len(other) != len(first) for other in noted[1:-1]):
        return Outcome(UNSTEADY, 0, len(first), unsteady=("the number of processes",))
    odd = {
        place
        for other in noted[1:-1]
        for place, (one, two) in enumerate(zip(first, other, strict=True))
        if one != two
    }
    unsteady = tuple(sorted({first[place][0] for place in odd}))
    for place, (one, two) in enumerate(zip_longest(first, last)):
        if place not in odd and one != two:
            named = one or two
            return Outcome(DIFFERENT, len(first), len(odd), named[0] if named else "", unsteady)
    status = SAME if len(first) > len(odd) else UNSTEADY if odd else NOTHING
    return Outcome(status, len(first) - len(odd), len(odd), unsteady=unsteady)


def compare_imports(bare: Sequence[Notes], wrapped: Notes) -> Outcome:
    """Compare the imports of each process with those of the bare runs: for Python's own the set, for others the order.

    Python's own modules may come earlier, and those of ``RECORDER_IMPORTS`` may be added: the recorder imports them.
    """
    orders = [notes.imports() for notes in (*bare, wrapped)]
    first, last = orders[0], orders[-1]
    if any(order != first for order in orders[1:-1]):
        return Outcome(UNSTEADY, 0, len(first), unsteady=("the order of imports",))
    count = sum(map(len, first))
    if len(first) != len(last):
        return Outcome(DIFFERENT, count, 0, f"{len(first)} processes became {len(last)}")
    for one, two in zip(first, last, strict=True):
        odd = (set(one) ^ set(two)) - (RECORDER_IMPORTS - set(one))
        if odd:
            return Outcome(DIFFERENT, count, 0, f"imported in one run only: {', '.join(sorted(odd)[:5])}")
        for place, (was, became) in enumerate(zip(_foreign(one), _foreign(two), strict=True), 1):
            if was != became:
                return Outcome(DIFFERENT, count, 0, f"import {place}: {was} became {became}")
    return Outcome(SAME if first else NOTHING, count)


def _foreign(modules: Iterable[str]) -> list[str]:
    """Return the modules that are not Python's own, in order."""
    return [name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
