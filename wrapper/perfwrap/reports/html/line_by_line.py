"""One step, line by line: the program's source with what each line costs, the modules, and the stacks."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, LineAccount, LineCost
from perfwrap.redaction import masked
from perfwrap.reports.excerpt import Source, parsed, read_source
from perfwrap.reports.html.encoding import clipped
from perfwrap.reports.html.flames import step_flames
from perfwrap.reports.html.module_tree import module_tree
from perfwrap.timeline.notebook_cells import at_line

MIN_FILE_SHARE = 0.03
"""Files with a smaller share of the step are only named."""

MIN_LINE_SHARE = 0.005
"""Lines with a larger share are shown with what is around them."""

MIN_SHARE_WITHOUT_SOURCE = 0.001
"""The same in a file that cannot be read."""

MOSTLY = 0.6
"""A line whose backward is a larger part of it says so."""

CONTEXT = 2
SHORT_FUNCTION = 30
"""Lines of a function that is shown whole."""

MAX_FOLDED = 100
"""Hidden lines that can be unfolded; more are only counted."""

MAX_FILES = 12
MAX_HOT = 80
MAX_ROWS = 600
"""Lines of a file."""

MAX_TABLE = 300
TENTHS = 1000
COLUMNS = ("line", "function", "share", "time", "by part", "operations", "most frequent", "result", "module")

Costs = dict[int, list[LineCost]]


def line_by_line(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return the section; None if no operations were recorded."""
    account = diagnosis.line_account
    if account is None:
        return None
    directory = str(diagnosis.run.get("cwd") or ".").rstrip("/") + "/"
    by_file: dict[str, Costs] = defaultdict(lambda: defaultdict(list))
    for cost in account.lines:
        by_file[cost.line.file][cost.line.line].append(cost)
    shares = {file: _ns(costs) / account.step_ns for file, costs in by_file.items()}
    ordered = sorted(filter(None, shares), key=lambda file: -shares[file])
    large = [file for file in ordered if shares[file] >= MIN_FILE_SHARE][:MAX_FILES]
    hottest = max((_line_ns(costs) for file in by_file.values() for costs in file.values()), default=0.0)
    rest = [f"{_name(file, directory)} {units.share(shares[file])}" for file in ordered[len(large) :]]
    if shares.get(""):
        rest.append(f"no known line {units.share(shares[''])}")
    return {
        "time": units.duration(account.step_ns, 3),
        "bare": units.duration(account.bare_ns, 3),
        "parts": _parts(account),
        "files": [
            {
                "name": _name(file, directory),
                "share": units.share(shares[file]),
                **_File(by_file[file], account, hottest).shown(read_source(file, diagnosis.run)),
            }
            for file in large
        ],
        "rest": clipped(", ".join(rest[:MAX_FILES])),
        "table": _table(account, directory),
        "modules": module_tree(account),
        "flames": step_flames(account),
    }


def _parts(account: LineAccount) -> list[dict[str, Any]]:
    """Return the parts of the step, the largest first; their shares sum to exactly 100 %."""
    sums: Counter[str] = Counter()
    for cost in account.lines:
        sums.update(cost.parts)
    tenths = units.apportion({part: float(ns) for part, ns in sums.items()}, TENTHS)
    return [
        {"part": part, "tenths": value, "share": f"{value / 10:.1f} %"}
        for part, value in sorted(tenths.items(), key=lambda row: -row[1])
        if value
    ]


class _File:
    """The lines of one file."""

    def __init__(self, costs: Costs, account: LineAccount, hottest: float) -> None:
        self.costs = costs
        self.step_ns = account.step_ns
        self.hottest = hottest or 1.0

    def shown(self, source: Source | None) -> dict[str, Any]:
        """Return the lines around the expensive ones, in pieces that are open, folded, or only counted."""
        if source is None:
            rows = [
                self._row(line, costs[0].line.function, {}, known=False)
                for line, costs in sorted(self.costs.items())
                if _line_ns(costs) >= MIN_SHARE_WITHOUT_SOURCE * self.step_ns
            ]
            note = "The file could not be read: each line shows its function only."
            return {"note": note, "pieces": [{"rows": rows[:MAX_ROWS]}]}
        text = source.text.splitlines()
        functions = _functions(parsed(source.text))
        visible = self._visible(len(text), functions)
        notes = self._notes_of_functions(functions)
        pieces: list[dict[str, Any]] = []
        room = MAX_ROWS
        for is_open, numbers in _runs(visible, len(text)):
            if (not is_open and len(numbers) > MAX_FOLDED) or room <= 0:
                pieces.append({"left_out": units.counted(len(numbers), "line")})
                continue
            room -= len(numbers)
            rows = [self._row(number, text[number - 1], notes) for number in numbers]
            folded = "" if is_open else units.counted(len(numbers), "line")
            pieces.append({"rows": rows, "folded": folded})
        beyond = [number for number in self.costs if not 1 <= number <= len(text)]
        note = ""
        if source.changed or beyond:
            note = "The file has changed since the run: its lines may have moved."
        return {"note": note, "pieces": pieces}

    def _visible(self, length: int, functions: Sequence[_Function]) -> set[int]:
        """Return the numbers of the lines to show."""
        by_cost = sorted(self.costs, key=lambda line: -_line_ns(self.costs[line]))
        hot = [
            line for line in by_cost[:MAX_HOT] if _line_ns(self.costs[line]) >= MIN_LINE_SHARE * self.step_ns
        ] or by_cost[:1]
        found: set[int] = set()
        for line in hot:
            around = _around(functions, line)
            first, last = (around[-1].first, around[-1].last) if around else (1, length)
            if around and last - first < SHORT_FUNCTION:
                found.update(range(first, last + 1))
            found.update(range(max(first, line - CONTEXT), min(last, line + CONTEXT) + 1))
            found.update(each.first for each in around)
        return {line for line in found if 1 <= line <= length}

    def _notes_of_functions(self, functions: Sequence[_Function]) -> dict[int, str]:
        """Return what each function costs, by its first line."""
        sums: dict[int, float] = defaultdict(float)
        for line, costs in self.costs.items():
            around = [each for each in _around(functions, line) if not each.is_class]
            if around:
                sums[around[-1].first] += _line_ns(costs)
        return {
            line: f"{units.share(ns / self.step_ns)} in this function"
            for line, ns in sums.items()
            if ns >= MIN_LINE_SHARE * self.step_ns
        }

    def _row(self, number: int, text: str, notes: Mapping[int, str], known: bool = True) -> dict[str, Any]:
        """Return a line with its cost, if it has one."""
        shown = masked(text.expandtabs(4).rstrip(), is_code=True) if known else text
        row: dict[str, Any] = {"line": number, "text": clipped(shown, 400)}
        if not known:
            row["is_function"] = True
        if number in notes:
            row["note"] = notes[number]
        costs = self.costs.get(number)
        if costs:
            parts = _sum_of_parts(costs)
            ns = sum(parts.values())
            row["share"] = units.share(ns / self.step_ns)
            row["bar"] = [[part, round(100 * each / self.hottest, 2)] for part, each in parts.items() if each]
            row["title"] = clipped(_in_words(costs, self.step_ns))
            backward = parts.get("backward", 0.0)
            if backward > MOSTLY * ns >= MOSTLY * MIN_LINE_SHARE * self.step_ns:
                row["note"] = f"{units.share(backward / ns)} of this line is its backward"
        return row


class _Function:
    """The lines of a function or class."""

    def __init__(self, node: ast.AST) -> None:
        self.first: int = node.lineno  # type: ignore[attr-defined]
        self.last: int = node.end_lineno or self.first  # type: ignore[attr-defined]
        self.is_class = isinstance(node, ast.ClassDef)


def _functions(tree: ast.Module) -> list[_Function]:
    """Return all functions and classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [_Function(node) for node in ast.walk(tree) if isinstance(node, kinds)]


def _around(functions: Iterable[_Function], line: int) -> list[_Function]:
    """Return the functions and classes around a line, the innermost last; not a class alone."""
    found = sorted(
        (each for each in functions if each.first <= line <= each.last), key=lambda each: each.first
    )
    return [] if all(each.is_class for each in found) else found


def _runs(visible: set[int], length: int) -> list[tuple[bool, range]]:
    """Return consecutive lines that are shown or not; one or two between shown ones are shown too."""
    runs: list[tuple[bool, range]] = []
    ordered = sorted(visible)
    at = 1
    while at <= length:
        if at in visible:
            end = at
            while end <= length and (end in visible or {end + 1, end + 2} & visible):
                end += 1
            runs.append((True, range(at, end)))
        else:
            end = next((line for line in ordered if line > at), length + 1)
            runs.append((False, range(at, end)))
        at = end
    return runs


def _ns(costs: Costs) -> float:
    return sum(map(_line_ns, costs.values()))


def _line_ns(costs: Iterable[LineCost]) -> float:
    return sum(cost.ns for cost in costs)


def _sum_of_parts(costs: Iterable[LineCost]) -> dict[str, float]:
    """Return the parts of one line, whichever function of it called."""
    sums: dict[str, float] = {}
    for cost in costs:
        for part, ns in cost.parts.items():
            sums[part] = sums.get(part, 0.0) + ns
    return sums


def _in_words(costs: Sequence[LineCost], step_ns: float) -> str:
    """Return the cost of a line in words."""
    costliest = max(costs, key=lambda cost: cost.ns)
    words = [
        _listed(_sum_of_parts(costs), step_ns),
        units.counted(sum(cost.operations for cost in costs), "operation"),
        _kinds(costliest),
        costliest.shape,
        costliest.module,
    ]
    return "; ".join(filter(None, words))


def _listed(parts: Mapping[str, float], step_ns: float) -> str:
    """Return the parts in words, the largest first."""
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{part} {units.share(ns / step_ns)}" for part, ns in ordered if ns)


def _kinds(cost: LineCost) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in cost.kinds)


def _name(file: str, directory: str) -> str:
    return clipped(file.removeprefix(directory), 300)


def _table(account: LineAccount, directory: str) -> dict[str, Any]:
    """Return all lines as a table."""
    rows = [
        [
            at_line(_name(cost.line.file, directory), cost.line.line) if cost.line.file else units.UNKNOWN,
            cost.line.function,
            units.share(cost.ns / account.step_ns),
            units.duration(cost.ns),
            _listed(cost.parts, account.step_ns),
            units.count(cost.operations),
            _kinds(cost),
            cost.shape,
            cost.module,
        ]
        for cost in account.lines[:MAX_TABLE]
    ]
    return {
        "columns": list(COLUMNS),
        "rows": [[clipped(cell, 300) for cell in row] for row in rows],
        "left_out": len(account.lines) - len(rows),
    }
