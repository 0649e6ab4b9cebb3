"""Reads the code cells of a notebook as one text for an edit, and writes an edited text back into their cells.

Between cells the text has a line that is no code of theirs; lines that only IPython understands (``%matplotlib``,
``!pip``) are kept in strings. Only the source of changed cells differs in the file: a notebook that Jupyter would
write differently is refused.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from perfwrap.edits.files.source_file import SourceFile
from perfwrap.edits.outcome import Refusal

SUFFIX = ".ipynb"
BORDER = "__perfwrap_cell__ = "
KEPT = "__perfwrap_line__ = "
MAGIC = re.compile(r"^(\s*)([%!?].*)$")
CELL_MAGIC = re.compile(r"^\s*%%")
KEPT_LINE = re.compile(rf"^(\s*){KEPT}('.*'|\".*\")$")
BORDER_LINE = re.compile(rf"^{BORDER}(\d+)$")
LINE = re.compile(r"\bline (\d+)")
STYLES = [(indent, ascii) for indent in (1, 2, 4) for ascii in (False, True)]


class NotebookFile(SourceFile, frozen=True):
    """A notebook as it was read; its text is that of the code cells that are not empty."""

    @property
    def text(self) -> str:
        """The code cells in their order, each behind a line with its number, counted from 1."""
        parts = []
        for number, cell in enumerate(_code_cells(_parsed(self)), 1):
            parts += [f"{BORDER}{number}", *_as_python(_source(cell))]
        return "".join(f"{line}\n" for line in parts)

    @property
    def shown_text(self) -> str:
        """The cells with headings between them."""
        lines = (BORDER_LINE.sub(r"# cell [\1]", _as_notebook(line)) for line in self.text.splitlines())
        return "".join(f"{line}\n" for line in lines)

    def encoded(self, text: str) -> bytes:
        """Return the notebook with the cells of an edited text; raises Refusal if it cannot be written so."""
        notebook = _parsed(self)
        indent, escaped, end = _style(self.content.decode("utf-8"), notebook)
        sources = _split(text)
        cells = list(_code_cells(notebook))
        if list(sources) != list(range(1, len(cells) + 1)):
            raise Refusal(f"The edit moves code of {self.path.name} to another cell.")
        for number, cell in enumerate(cells, 1):
            if _as_python(_source(cell)) != sources[number]:
                source = "\n".join(map(_as_notebook, sources[number]))
                cell["source"] = (
                    source.splitlines(keepends=True) if isinstance(cell["source"], list) else source
                )
        return (_dumped(notebook, indent, escaped) + end).encode("utf-8")

    def line_in_text(self, cell_text: str, line: int) -> int:
        """Return the line of the text for a line of the cell that ran with this text, counted from 1.

        Empty lines at the beginning of a cell do not count. Raises Refusal if no cell, or several, have that text.
        """
        wanted = cell_text.strip("\n").splitlines()
        lines = self.text.splitlines()
        found = []
        for place, text in enumerate(lines):
            if BORDER_LINE.match(text):
                first = place + 1
                while first < len(lines) and not lines[first].strip():
                    first += 1
                own = [_as_notebook(each) for each in lines[first : first + len(wanted)]]
                behind = first + len(wanted)
                ends = all(not each.strip() for each in _until_border(lines[behind:]))
                if own == wanted and ends:
                    found.append(first + line)
        if len(found) != 1:
            raise Refusal(f"{self.path.name} does not have the cell that ran, or several with its text.")
        return found[0]

    def place(self, line: int) -> tuple[int, int]:
        """Return the number of the cell of a line of the text, and its line there without empty ones before it."""
        number, begin, lines = 0, 0, self.text.splitlines()
        for at, text in enumerate(lines[:line], 1):
            found = BORDER_LINE.match(text)
            if found:
                number, begin = int(found[1]), at
        while begin < line - 1 and not lines[begin].strip():
            begin += 1
        return number, line - begin

    def in_words(self, sentence: str) -> str:
        """Return a sentence about lines of the text with the cells and lines of the notebook."""

        def named(found: re.Match[str]) -> str:
            cell, line = self.place(int(found[1]))
            return f"cell [{cell}], line {line}"

        return LINE.sub(named, sentence)


def _parsed(file: SourceFile) -> dict[str, Any]:
    """Return the notebook; raises Refusal if it is none of version 4 in Python."""
    try:
        notebook = json.loads(file.content)
    except (ValueError, RecursionError):
        notebook = None
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4:
        raise Refusal(f"{file.path.name} is no notebook of version 4.")
    language = ((notebook.get("metadata") or {}).get("kernelspec") or {}).get("language", "python")
    if language != "python":
        raise Refusal(f"{file.path.name} is a notebook in {language}.")
    return notebook


def _code_cells(notebook: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the code cells that are not empty: those that a run numbers."""
    for cell in notebook.get("cells") or ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code" and _source(cell).strip():
            yield cell


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get("source")
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _as_python(source: str) -> list[str]:
    """Return the lines of a cell, with those that are not Python in strings; one of another language as a whole."""
    lines = source.split("\n")
    is_other = any(CELL_MAGIC.match(line) for line in lines[:1])
    return [f"{KEPT}{line!r}" if is_other else MAGIC.sub(_kept, line) for line in lines]


def _kept(found: re.Match[str]) -> str:
    return f"{found[1]}{KEPT}{found[2]!r}"


def _as_notebook(line: str) -> str:
    """Return a line as the notebook has it."""
    found = KEPT_LINE.match(line)
    return f"{found[1]}{ast.literal_eval(found[2])}" if found else line


def _split(text: str) -> dict[int, list[str]]:
    """Return the lines of each cell by its number; raises Refusal for code before the first."""
    cells: dict[int, list[str]] = {}
    number = 0
    for line in text.split("\n")[:-1]:
        found = BORDER_LINE.match(line)
        if found:
            number = int(found[1])
            cells[number] = []
        elif number:
            cells[number].append(line)
        else:
            raise Refusal("The edit adds code before the first cell.")
    return cells


def _until_border(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if BORDER_LINE.match(line):
            return
        yield line


def _style(text: str, notebook: Mapping[str, Any]) -> tuple[int, bool, str]:
    """Return how the file is written: indentation, whether beyond ASCII is escaped, and what stands at the end."""
    end = "\n" if text.endswith("\n") else ""
    for indent, escaped in STYLES:
        if _dumped(notebook, indent, escaped) + end == text:
            return indent, escaped, end
    raise Refusal("The notebook is not written as Jupyter writes it, so more than its cells would change.")


def _dumped(notebook: Mapping[str, Any], indent: int, escaped: bool) -> str:
    return json.dumps(notebook, indent=indent, ensure_ascii=escaped, separators=(",", ": "))
