"""Write the generated parts of the documentation: rules, commands, formats of other tools, and what recording costs.

    python scripts/update_docs.py            rewrite the text between the markers
    python scripts/update_docs.py --check    change nothing; exit code 1 if a part is stale

The part ``rules`` is between ``<!-- rules -->`` and ``<!-- /rules -->`` in one of PAGES, and likewise for the others of
PARTS. The costs come from docs/overhead.json, which ``scripts/cost/overhead.py --json`` writes.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import typer
from perfwrap.rules.model import Rule

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = tuple(REPOSITORY / page for page in ("README.md", "docs/commands.md", "docs/rules.md"))
COSTS = REPOSITORY / "docs" / "overhead.json"
MARKER = re.compile(r"<!-- (?P<name>[a-z]+) -->\n(?P<old>.*?)<!-- /(?P=name) -->\n", re.DOTALL)


def groups() -> dict[str, tuple[Rule, ...]]:
    """Return the rules by their topics' titles."""
    from perfwrap.rules import TOPICS

    return {topic.TITLE: topic.RULES for topic in TOPICS}


def rules() -> str:
    """Return the table of rules, by group, each with a link to its page."""
    from perfwrap.reports.terminal.explanation import summary
    from perfwrap.rules.model import rule_id

    rows = [
        f"| {title if place == 0 else ''} | [`{rule_id(rule)}`](#{rule_id(rule)}) | {_prose(summary(rule))} |"
        for title, group in groups().items()
        for place, rule in enumerate(group)
    ]
    return "\n".join(["| group | rule | what it means |", "|---|---|---|", *rows]) + "\n"


def pages() -> str:
    """Return every rule's own documentation, by group."""
    parts = []
    for title, group in groups().items():
        parts.append(f"## {title}")
        parts += [_page(rule) for rule in group]
    return "\n\n".join(parts) + "\n"


def _page(rule: Rule) -> str:
    """Return one rule's documentation and thresholds."""
    from perfwrap.reports.terminal.explanation import sections, summary
    from perfwrap.rules.model import rule_id
    from perfwrap.rules.thresholds import thresholds_of

    parts = [f"### `{rule_id(rule)}`", f"{_prose(summary(rule))}"]
    for heading, paragraphs in sections(rule).items():
        first, *others = [_prose(paragraph) for paragraph in paragraphs]
        parts += [f"**{heading}.** {first}", *others]
    thresholds = ", ".join(f"`{name} = {value:.12g}`" for name, value in thresholds_of(rule).items())
    return "\n\n".join([*parts, f"**Thresholds.** {thresholds}."] if thresholds else parts)


def _prose(text: str) -> str:
    """Return text of a docstring, escaped for Markdown."""
    return re.sub(r"\b__\w+__\b", r"`\g<0>`", text).replace("<", "&lt;").replace("*", "\\*")


def commands() -> str:
    """Return every command with its arguments and options and what they do."""
    from perfwrap.commands import COMMANDS
    from perfwrap.commands.options.optional_values import MIN_GROUPED

    parts = []
    for command in COMMANDS:
        # Read from the functions: typer's help differs from version to version.
        function = command.load()
        known = [
            _explained(parameter)
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
        ]
        arguments = [shown for shown, _, _ in known if not shown.startswith("--")]
        is_long = len(known) > MIN_GROUPED
        tables: dict[str, list[str]] = {}
        for shown, text, panel in known:
            if text:
                tables.setdefault(panel if is_long else "", []).append(f"| `{shown}` | {_cell(text)} |")
        heading = " ".join([f"perfwrap {command.name}", *arguments])
        lines = [f"## `{heading}`", "", _flowed(inspect.getdoc(function) or "")]
        for title, rows in tables.items():
            lines += ["", *([f"**{title}**", ""] if title else []), "| | |", "|---|---|", *rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def formats() -> str:
    """Return the table of the formats that can be imported, from the first paragraph of each reader's docstring."""
    from perfwrap.sources import SOURCES, files

    rows = ["| `--format` | |", "|---|---|"]
    for name in files.formats():
        text = inspect.getdoc(import_module(f"perfwrap.sources.{SOURCES[name]}")) or ""
        first = text.split("\n\n")[0].replace("``", "`")
        rows.append(f"| `{name}` | {_cell(first)} |")
    return "\n".join(rows) + "\n"


def costs() -> str:
    """Return the table of the cost of recording, from the last measurement."""
    if not COSTS.is_file():
        return "Not measured yet: `python scripts/cost/overhead.py --json docs/overhead.json`.\n"
    # Needs numpy and psutil, which the other parts do not.
    sys.path.insert(0, str(REPOSITORY / "scripts" / "cost"))
    import overhead

    measured = json.loads(COSTS.read_text(encoding="utf-8"))
    for loop in measured["loops"].values():
        loop["ratios"] = {name: overhead.Ratio(**ratio) for name, ratio in loop["ratios"].items()}
    return overhead.table(measured["loops"], measured["start_up"]) + "\n"


def _explained(parameter: inspect.Parameter) -> tuple[str, str, str]:
    """Return an argument or option as a user types it, its help, and its group."""
    settings = parameter.annotation.__metadata__[0]
    kind, text = parameter.annotation.__origin__, settings.help or ""
    metavar, panel = settings.metavar or parameter.name.upper(), settings.rich_help_panel or ""
    if isinstance(settings, typer.models.ArgumentInfo):
        optional = parameter.default is not inspect.Parameter.empty and not settings.metavar
        return f"[{metavar}]" if optional else metavar, text, panel
    # In an Annotated type, typer takes the first positional argument for a name although it is called ``default``.
    names = [name for name in (settings.default, *(settings.param_decls or ())) if str(name).startswith("--")]
    option = next(iter(names), f"--{parameter.name.replace('_', '-')}")
    return option if kind is bool else f"{option} {metavar}", text + _default(parameter, settings), panel


def _default(parameter: inspect.Parameter, settings: typer.models.OptionInfo) -> str:
    """Return the default of an option as its help shows it; empty if it has none."""
    shown = settings.show_default if isinstance(settings.show_default, str) else parameter.default
    if shown is None or shown in (False, 0, "", inspect.Parameter.empty) or not settings.help:
        return ""
    return f" Default: {f'{shown:g}' if isinstance(shown, float) else shown}.".replace("<", "&lt;")


def _flowed(text: str) -> str:
    """Return a docstring with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


PARTS: dict[str, Callable[[], str]] = {
    "rules": rules,
    "pages": pages,
    "commands": commands,
    "formats": formats,
    "costs": costs,
}
"""The generated parts by the name of their marker."""


def renewed(text: str) -> str:
    """Return the text with every generated part renewed; SystemExit for an unknown marker."""

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in PARTS:
            raise SystemExit(f"nothing generates the part <!-- {name} -->")
        return f"<!-- {name} -->\n{PARTS[name]()}<!-- /{name} -->\n"

    return MARKER.sub(replace, text)


def _cell(text: str) -> str:
    """Return text that fits a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Renew the pages, or print which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a part is stale")
    arguments = parser.parse_args()
    stale = [page for page in PAGES if _renew(page, arguments.check)]
    if stale and arguments.check:
        print(f"\n{', '.join(page.name for page in stale)}: stale. Run python scripts/update_docs.py")
        return 1
    return 0


def _renew(page: Path, only_check: bool) -> bool:
    """Renew the page's generated parts, or print what would change; return whether anything changes."""
    old = page.read_text(encoding="utf-8")
    new = renewed(old)
    if new != old and only_check:
        lines = (old.splitlines(True), new.splitlines(True))
        sys.stdout.writelines(difflib.unified_diff(*lines, page.name, f"{page.name}, renewed"))
    elif new != old:
        page.write_text(new, encoding="utf-8")
    return new != old


if __name__ == "__main__":
    sys.exit(main())
