"""The edit to make in the user's own files: a diff if ``edits/`` can make it, else some lines and where to put them.

perfwrap never edits files: the user can apply the diff with ``git apply`` or ``patch -p1``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from perfwrap.edits.files.edited_text import with_edit
from perfwrap.edits.files.patch_text import patch, root_of
from perfwrap.edits.files.source_file import SourceFile
from perfwrap.edits.files.source_reader import read_source
from perfwrap.edits.outcome import Refusal, Target, Value
from perfwrap.experiments.snippets import snippet
from perfwrap.experiments.variants import name_of, value_of
from perfwrap.timeline.notebook_cells import at_line

LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<")
"""Files that do not belong to the user."""
LOADER_ARGUMENTS = {
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "persistent-workers": "persistent_workers",
    "pin-memory": "pin_memory",
    "batch-size": "batch_size",
}
"""The arguments of a DataLoader that changes set."""
EDITS = {
    "fused-optimizer": "optimizer_options",
    "set-to-none": "zero_grad_option",
    "non-blocking": "transfer_option",
    "no-debug": "debug_calls",
    "no-empty-cache": "cleanup_calls",
    "threads": "thread_count",
}
"""The edits that make other changes at the lines where they were made."""


class Site(Struct, frozen=True):
    """A line where a change was made while the program ran: the old and the new value, e.g. ``num_workers=0``."""

    file: str
    line: int
    before: str = ""
    after: str = ""


class Edit(Struct, frozen=True):
    """What to do: ``diff`` for the user's files, and ``snippets`` for all other changes."""

    diff: str = ""
    snippets: tuple[str, ...] = ()
    root: str = ""
    """The folder to apply the diff in."""

    @property
    def text(self) -> str:
        """Everything as one text."""
        return "\n".join([*([self.diff.rstrip("\n")] if self.diff else []), *self.snippets])


class Step(Struct, frozen=True):
    """An edit to make at one line, and the changes that it makes."""

    changes: tuple[str, ...]
    file: str
    name: str
    target: Target


def edit_for(sites: Mapping[str, Iterable[Site]], folder: Path, words: Sequence[str] = ()) -> Edit:
    """Return the edit for changes with the lines where each was made.

    ``folder`` is where the program runs, ``words`` are those of its command.
    """
    found = {change: tuple(places) for change, places in sites.items()}
    texts: dict[Path, tuple[SourceFile, str]] = {}
    done: set[str] = set()
    reasons: dict[str, str] = {}
    for step in _steps(found, tuple(words)):
        try:
            file = read_source(folder / step.file)
            _, now = texts.get(file.path, (file, file.text))
            text = with_edit(file.text, now, step.name, step.target)
            file.encoded(text)
        except Refusal as refusal:
            reasons |= dict.fromkeys(step.changes, refusal.reason)
            continue
        texts[file.path] = file, text
        done |= set(step.changes)
    contents = {file: file.encoded(text) for file, text in texts.values()}
    others = [
        _snippet(change, places, reasons.get(change, ""))
        for change, places in found.items()
        if change not in done
    ]
    return Edit(
        patch(contents).decode("utf-8", "replace"),
        tuple(text for text in others if text is not None),
        str(root_of(file.path for file in contents)) if contents else "",
    )


def _steps(sites: Mapping[str, Sequence[Site]], words: tuple[str, ...]) -> Iterator[Step]:
    """Return the edits to make, in the order of the lines; changes of one DataLoader are one edit."""
    loaders: dict[tuple[str, int], list[tuple[str, Site]]] = {}
    others: list[Step] = []
    for change, places in sites.items():
        # A cell of a notebook is no file.
        for site in (one for one in places if _is_users(one.file) and one.file.endswith(".py")):
            name = name_of(change)
            if name in LOADER_ARGUMENTS:
                loaders.setdefault((site.file, site.line), []).append((change, site))
            elif name in EDITS:
                target = Target(site.line, _values(change, site), words)
                others.append(Step((change,), site.file, EDITS[name], target))
    for (file, line), made in loaders.items():
        values = {LOADER_ARGUMENTS[name_of(change)]: _number(value_of(change)) for change, _ in made}
        seen = dict(pair for _, site in made for pair in _assigned(site.before).items())
        target = Target(line, values, words, seen)
        others.append(Step(tuple(change for change, _ in made), file, "loader_options", target))
    return iter(sorted(others, key=lambda step: (step.file, step.target.line)))


def _values(change: str, site: Site) -> dict[str, Value]:
    """Return what an edit that is not of a DataLoader needs."""
    if name_of(change) == "threads":
        return {"threads": _number(value_of(change))}
    if name_of(change) == "fused-optimizer":
        # The device of the parameters decides which of the two an optimizer needs.
        return _assigned(site.after) or {"fused": True}
    return {}


def _number(value: str) -> Value:
    """Return the value of a change; one without a value switches something on."""
    return int(value) if value else True


def _assigned(text: str) -> dict[str, Value]:
    """Return what a site says, such as ``num_workers=0``, if it is a keyword with a literal."""
    keyword, equals, value = text.partition("=")
    try:
        literal = ast.literal_eval(value) if equals else None
    except (ValueError, SyntaxError):
        return {}
    return {keyword: literal} if isinstance(literal, int | float | bool | str) else {}


def _snippet(change: str, sites: tuple[Site, ...], reason: str) -> str | None:
    """Return the snippet for a change, with the first line of the user's code where it was made."""
    own = next((at_line(Path(site.file).name, site.line) for site in sites if _is_users(site.file)), "")
    text = snippet(change, own, any("/transformers/" in site.file for site in sites))
    return f"{text}\n# No diff: {reason}" if text is not None and reason else text


def _is_users(file: str) -> bool:
    """Return whether a file belongs to the user."""
    return not LIBRARY.search(file)
