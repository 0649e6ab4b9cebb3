"""A parsed source text: LibCST's tree with the line, the parent and the scope of each node, and its replacement."""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from perfwrap.edits.outcome import Refusal

Result = cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]
Change = cst.CSTNode | Callable[[cst.CSTNode], Result]
"""A node's replacement, or a function that makes it of the node with the changes inside of it."""
Function = cst.FunctionDef | cst.Lambda
Loop = cst.For | cst.While
MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 250
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""A line with its end; only these characters end a line of Python."""


class Source:
    """A parsed text."""

    def __init__(self, module: cst.Module) -> None:
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = module
        self._ranges = cast(Mapping[cst.CSTNode, CodeRange], wrapper.resolve(PositionProvider))
        order = _Order()
        module.visit(order)
        self._nodes, self._places, self._parents = order.nodes, order.places, order.parents
        self.full_names = _imported_names(self)

    def line(self, node: cst.CSTNode) -> int:
        """Return the first line of a node."""
        return self._ranges[node].start.line

    def last_line(self, node: cst.CSTNode) -> int:
        """Return the last line of a node; that of a block or a statement is that of its last token."""
        return self._ranges[node].end.line

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node."""
        return self.module.code_for_node(node)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return what a node is directly inside of."""
        return self._parents.get(node)

    def inside(self, node: cst.CSTNode, *kinds: type[Any]) -> Iterator[Any]:
        """Return the nodes of these kinds inside of a node, itself included, in the order of the text."""
        first, end = self._places[node]
        return (found for found in self._nodes[first:end] if isinstance(found, kinds))

    def around(self, node: cst.CSTNode, *kinds: type[Any]) -> Iterator[Any]:
        """Return the nodes of these kinds around a node, the innermost first, without itself."""
        parent = self._parents.get(node)
        while parent is not None:
            if isinstance(parent, kinds):
                yield parent
            parent = self._parents.get(parent)

    def is_inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether a node is inside of another one, or is that one."""
        first, end = self._places[outer]
        return first <= self._places[node][0] < end

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the function (or lambda), the class or the module that the names of a node belong to."""
        around = self.around(node, cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.Module)
        return cast(cst.CSTNode, next(around, self.module))

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the innermost statement of its own lines that holds a node."""
        if isinstance(node, cst.BaseStatement):
            return node
        return cast(cst.BaseStatement, next(self.around(node, cst.BaseStatement)))

    def loop(self, node: cst.CSTNode) -> Loop | None:
        """Return the innermost loop of the same function whose body a node is in."""
        for outer in self.around(node, cst.For, cst.While, cst.FunctionDef, cst.Lambda, cst.ClassDef):
            if isinstance(outer, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                return None
            if self.is_inside(node, outer.body):
                return cast(Loop, outer)
        return None

    def at_line(self, line: int, *kinds: type[Any]) -> list[Any]:
        """Return the nodes of these kinds that start at a line; if none does, those that span it."""
        found = [node for node in self.inside(self.module, *kinds) if node in self._ranges]
        starting = [node for node in found if self.line(node) == line]
        return starting or [node for node in found if self.line(node) <= line <= self.last_line(node)]

    def name(self, expression: cst.CSTNode) -> str:
        """Return the dotted name of an expression with the imports resolved; empty if it is no dotted name."""
        dotted = dotted_name(expression)
        first, dot, rest = dotted.partition(".")
        return self.full_names.get(first, first) + dot + rest

    def replaced(self, changes: Mapping[cst.CSTNode, Change]) -> str:
        """Return the text with some nodes replaced."""
        return self.module.visit(_Replacing(changes)).code

    def without_lines(self, first: int, last: int) -> str:
        """Return the text without some lines, counted from 1."""
        lines = LINE.findall(self.module.code)
        return "".join(lines[: first - 1] + lines[last:])

    def parse(self, statement: str) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
        """Return a new statement, in the text's own indentation and line endings."""
        return cst.parse_statement(statement, config=self.module.config_for_parsing)


def parse(text: str) -> Source:
    """Return the parsed text; a text that LibCST cannot parse or does not return unchanged is refused."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal("The file is longer than a million characters.")
    if _depth(text) > MAX_DEPTH:
        raise Refusal("The file is nested too deeply.")
    try:
        module = cst.parse_module(text)
        if module.code != text:
            raise Refusal("LibCST does not return the file unchanged.")
        return Source(module)
    except cst.ParserSyntaxError as error:
        raise Refusal(f"LibCST cannot parse line {error.raw_line} of the file.") from None
    except RecursionError:
        raise Refusal("The file is nested too deeply.") from None


def _depth(text: str) -> int:
    """Return how deeply a text is nested: LibCST's parser in Rust ends the process where its stack is too small.

    Of a text that this Python does not parse, it is the depth of the brackets, those in strings included.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            level: list[ast.AST] = [ast.parse(text)]
    except (RecursionError, MemoryError):
        return MAX_DEPTH + 1
    except (SyntaxError, ValueError):
        steps = ((character in "([{") - (character in ")]}") for character in text)
        return max(itertools.accumulate(steps), default=0)
    depth = 0
    while level and depth <= MAX_DEPTH:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def dotted_name(expression: cst.CSTNode) -> str:
    """Return ``a.b.c`` of an expression; empty if it is anything else."""
    parts = []
    while isinstance(expression, cst.Attribute):
        parts.append(expression.attr.value)
        expression = expression.value
    if not isinstance(expression, cst.Name):
        return ""
    return ".".join([expression.value, *reversed(parts)])


def _imported_names(source: Source) -> dict[str, str]:
    """Return the full names of what the file imports, by the names that it uses."""
    names: dict[str, str] = {}
    for node in source.inside(source.module, cst.Import, cst.ImportFrom):
        if isinstance(node.names, cst.ImportStar):
            continue
        module = ""
        if isinstance(node, cst.ImportFrom):
            module = "." * len(node.relative) + (dotted_name(node.module) if node.module else "")
            module += "." if node.module else ""
        for alias in node.names:
            name = dotted_name(alias.name)
            if alias.asname is not None:
                names[dotted_name(alias.asname.name)] = module + name
            elif isinstance(node, cst.ImportFrom):
                names[name] = module + name
    return names


class _Order(cst.CSTVisitor):
    """Lists the nodes in the order of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[cst.CSTNode] = []
        self.places: dict[cst.CSTNode, tuple[int, int]] = {}
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._open: list[tuple[cst.CSTNode, int]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Note where a node begins; white space is no part of the list."""
        if isinstance(node, cst.BaseParenthesizableWhitespace | cst.TrailingWhitespace | cst.EmptyLine):
            return False
        if self._open:
            self.parents[node] = self._open[-1][0]
        self._open.append((node, len(self.nodes)))
        self.nodes.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Note where a node ends."""
        if self._open and self._open[-1][0] is original_node:
            node, first = self._open.pop()
            self.places[node] = first, len(self.nodes)


class _Replacing(cst.CSTTransformer):
    """Replaces nodes by identity."""

    def __init__(self, changes: Mapping[cst.CSTNode, Change]) -> None:
        super().__init__()
        self._changes = changes

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Result:  # type: ignore[override]
        """Return the replacement of a node."""
        change = self._changes.get(original_node)
        if change is None:
            return updated_node
        return change if isinstance(change, cst.CSTNode) else change(updated_node)
