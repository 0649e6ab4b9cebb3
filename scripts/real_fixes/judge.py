"""Whether the findings of a diagnosis name the guilty lines of a pair."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Finding = dict[str, Any]


@dataclass(frozen=True)
class Guilty:
    """Lines that a fix replaced, in the version before it."""

    file: str
    """Relative to the source."""
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Guilty:
        """Read ``file:first-last`` or ``file:line``."""
        file, _, lines = text.rpartition(":")
        first, _, last = lines.partition("-")
        return cls(file, int(first), int(last or first))

    def function(self, checkout: Path) -> str | None:
        """Return the name of the innermost function that holds all the lines; None at module level."""
        tree = ast.parse((checkout / self.file).read_text(encoding="utf-8"))
        holding = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno <= self.first
            and self.last <= (node.end_lineno or node.lineno)
        ]
        return max(holding, key=lambda node: node.lineno).name if holding else None


def judge(findings: list[Finding], guilty: tuple[Guilty, ...], checkout: Path) -> str:
    """Return ``first``, ``named``, ``around`` or ``nothing``."""
    if findings and _at_line(findings[0], guilty, checkout):
        return "first"
    if any(_at_line(finding, guilty, checkout) or _line_in_text(finding, guilty) for finding in findings):
        return "named"
    if any(_around(finding, guilty, checkout) for finding in findings):
        return "around"
    return "nothing"


def promised(
    findings: list[Finding], guilty: tuple[Guilty, ...], checkout: Path
) -> tuple[float, float] | None:
    """Return the smallest and largest saving that the first finding at or around a guilty line predicts."""
    for finding in findings:
        if _at_line(finding, guilty, checkout) or _in_range(finding, guilty, checkout):
            low, high = sorted(1 - value for value in finding["saving"].values())
            return (low, high) if high > 0 else None
    return None


def _at_line(finding: Finding, guilty: tuple[Guilty, ...], checkout: Path) -> bool:
    """Return whether the location is a guilty line, or a range of nothing but guilty lines."""
    return any(
        each.first <= first and last <= each.last and first <= last
        for each, first, last in _same_file(finding, guilty, checkout)
    )


def _in_range(finding: Finding, guilty: tuple[Guilty, ...], checkout: Path) -> bool:
    """Return whether the location is a range with a guilty line; it may continue in the loop's next iteration."""
    return any(
        (first <= each.last and each.first <= last)
        if first <= last
        else (each.last >= first or each.first <= last)
        for each, first, last in _same_file(finding, guilty, checkout)
    )


def _same_file(
    finding: Finding, guilty: tuple[Guilty, ...], checkout: Path
) -> Iterator[tuple[Guilty, int, int]]:
    """Yield the guilty lines in the finding's file, with the finding's first and last line."""
    location = finding["location"]
    if location and location["line"]:
        for each in guilty:
            if Path(location["file"]) == checkout / each.file:
                yield each, location["line"], location.get("until_line") or location["line"]


def _texts(finding: Finding) -> str:
    return "\n".join([*finding["evidence"], finding["advice"] or ""])


def _line_in_text(finding: Finding, guilty: tuple[Guilty, ...]) -> bool:
    """Return whether the evidence or the advice has ``file.py:line`` of a guilty line."""
    named = re.findall(r"([\w./+-]+\.py):(\d+)\b(?!-)", _texts(finding))
    return any(
        Path(file).name == Path(each.file).name and each.first <= int(line) <= each.last
        for file, line in named
        for each in guilty
    )


def _around(finding: Finding, guilty: tuple[Guilty, ...], checkout: Path) -> bool:
    """Return whether the finding names a range, or a function with its file, that holds a guilty line."""
    named = {
        (function, Path(file).name)
        for function, file in re.findall(r"\bin (\w+),? (?:mostly )?at ([\w./+-]+\.py)\b", _texts(finding))
    }
    functions = {(each.function(checkout), Path(each.file).name) for each in guilty}
    return _in_range(finding, guilty, checkout) or bool(functions & named)
