"""The edit to make in the user's own files: an exact diff if only an argument of a call changes, else a snippet.

perfwrap never edits files: the user can apply the diff with ``git apply`` or ``patch -p1``.
"""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from perfwrap.experiments.arguments import Argument, set_argument
from perfwrap.experiments.snippets import snippet
from perfwrap.experiments.variants import name_of, value_of
from perfwrap.private_files import read_plain
from perfwrap.timeline.notebook_cells import at_line

LOADER = re.compile(r"\w*DataLoader")
OPTIMIZER = re.compile(r"Adam|AdamW|SGD|Adagrad|RMSprop|NAdam|RAdam|Adadelta|Adamax|ASGD")
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<")
"""Files that do not belong to the user."""
ASSIGNED = re.compile(r"(?P<keyword>[A-Za-z_]\w*)=(?P<value>.+)", re.DOTALL)
CONTEXT_LINES = 2
MAX_BYTES = 16 << 20


class Site(Struct, frozen=True):
    """A line where a change was made while the program ran: the old and the new value."""

    file: str
    line: int
    before: str = ""
    after: str = ""


class Edit(Struct, frozen=True):
    """What to do: ``diff`` for the user's files, and ``snippets`` for all other changes."""

    diff: str = ""
    snippets: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Everything as one text."""
        return "\n".join([*([self.diff.rstrip("\n")] if self.diff else []), *self.snippets])


def edit_for(sites: Mapping[str, Iterable[Site]], folder: Path) -> Edit:
    """Return the edit for changes with the lines where each was made; ``folder`` is where the program runs."""
    wanted = [(change, site) for change, found in sites.items() for site in found if _is_users(site.file)]
    texts: dict[str, str | None] = {}
    edited: dict[str, str] = {}
    done = set()
    # From the last line up, so that added lines do not move the remaining edits.
    for change, site in sorted(set(wanted), key=lambda pair: -pair[1].line):
        old = texts.setdefault(site.file, _read(folder / site.file))
        argument = _argument(change, site)
        if old is None or argument is None:
            continue
        new = set_argument(edited.get(site.file, old), site.line, argument)
        if new is not None:
            edited[site.file] = new
            done.add(change)
    diffs = [_diff(str(texts[file]), new, file, folder) for file, new in sorted(edited.items())]
    others = [_snippet(change, tuple(found)) for change, found in sites.items() if change not in done]
    return Edit("".join(diffs), tuple(text for text in others if text is not None))


def _argument(change: str, site: Site) -> Argument | None:
    """Return the argument that makes the change, if it is one: as given at the site, or the default."""
    name, value = name_of(change), value_of(change)
    known = {
        "workers": Argument("num_workers", value, 5, LOADER),
        "prefetch": Argument("prefetch_factor", value, None, LOADER),
        "pin-memory": Argument("pin_memory", "True", 7, LOADER),
        "persistent-workers": Argument("persistent_workers", "True", None, LOADER),
        "batch-size": Argument("batch_size", value, 1, LOADER),
        "fused-optimizer": Argument("fused", "True", None, OPTIMIZER),
        "set-to-none": Argument("set_to_none", "True", 0, re.compile("zero_grad")),
        "non-blocking": Argument("non_blocking", "True", None, re.compile("to|cuda")),
        "no-debug": Argument("mode", "False", 0, re.compile("set_detect_anomaly")),
        "threads": Argument("int", value, 0, re.compile("set_num_threads")),
    }.get(name)
    given = ASSIGNED.fullmatch(site.after)
    if known is None or name != "fused-optimizer" or given is None:
        return known
    # The device of the parameters decides which of the two an optimizer needs.
    return Argument(given["keyword"], given["value"], None, OPTIMIZER)


def _snippet(change: str, sites: tuple[Site, ...]) -> str | None:
    """Return the snippet for a change, with the first line of the user's code where it was made."""
    own = next((at_line(Path(site.file).name, site.line) for site in sites if _is_users(site.file)), "")
    return snippet(change, own, any("/transformers/" in site.file for site in sites))


def _is_users(file: str) -> bool:
    """Return whether a file belongs to the user."""
    return not LIBRARY.search(file)


def _read(path: Path) -> str | None:
    """Return a source file with its original line endings; None if it cannot be read."""
    try:
        content = read_plain(path, MAX_BYTES)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except (OSError, SyntaxError, ValueError):
        return None


def _diff(old: str, new: str, file: str, folder: Path) -> str:
    """Return the unified diff of one file, with a path relative to the working folder if it is inside."""
    path = Path(file)
    inside = path.is_absolute() and path.is_relative_to(folder)
    name = path.relative_to(folder).as_posix() if inside else path.as_posix()
    before, after = (name, name) if name.startswith("/") else (f"a/{name}", f"b/{name}")
    lines = difflib.unified_diff(
        _lines(old), _lines(new), fromfile=before, tofile=after, n=CONTEXT_LINES, lineterm="\n"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(text: str) -> list[str]:
    """Return the lines with their endings, split only at line feeds, as ``patch`` does."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
