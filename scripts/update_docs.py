"""Write the generated parts of the README: the rules, the commands' help, and what recording costs.

    python scripts/update_docs.py            rewrite what stands between the markers
    python scripts/update_docs.py --check    change nothing; exit code 1 when something is stale

A part stands between ``<!-- rules -->`` and ``<!-- /rules -->``, and so on for ``commands`` and ``costs``.
The costs come from docs/overhead.json, which scripts/overhead.py writes when it is told to.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import typer

REPOSITORY = Path(__file__).resolve().parent.parent
README = REPOSITORY / "README.md"
COSTS = REPOSITORY / "docs" / "overhead.json"
MARKER = re.compile(r"<!-- (?P<name>[a-z]+) -->\n(?P<old>.*?)<!-- /(?P=name) -->\n", re.DOTALL)


def rules() -> str:
    """Return the table of rules."""
    from perfwrap.reports.explanation import summary
    from perfwrap.rules import RULES
    from perfwrap.rules.model import rule_id

    rows = [f"| `{rule_id(rule)}` | {summary(rule)} |" for rule in RULES]
    return "\n".join(["| rule | what it means |", "|---|---|", *rows]) + "\n"


def commands() -> str:
    """Return every command with its arguments and options and what they do."""
    from perfwrap.commands import COMMANDS

    parts = []
    for name, function, _ in COMMANDS:
        # Read from the functions: what typer makes of them differs from version to version.
        known = [
            _explained(parameter)
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
        ]
        arguments = [shown for shown, _ in known if not shown.startswith("--")]
        rows = [f"| `{shown}` | {_cell(text)} |" for shown, text in known if text]
        table = ["", "| | |", "|---|---|", *rows] if rows else []
        heading = " ".join([f"perfwrap {name}", *arguments])
        parts.append("\n".join([f"#### `{heading}`", "", _flowed(inspect.getdoc(function) or ""), *table]))
    return "\n\n".join(parts) + "\n"


def costs() -> str:
    """Return the table of what recording costs, as it was measured last."""
    if not COSTS.is_file():
        return "Not measured yet: `python scripts/overhead.py --json docs/overhead.json`.\n"
    # Beside this script; needs numpy and psutil, which the other parts do not.
    import overhead

    measured = json.loads(COSTS.read_text(encoding="utf-8"))
    for loop in measured["loops"].values():
        loop["ratios"] = {name: overhead.Ratio(**ratio) for name, ratio in loop["ratios"].items()}
    return overhead.table(measured["loops"], measured["start_up"]) + "\n"


def _explained(parameter: inspect.Parameter) -> tuple[str, str]:
    """Return an argument or option as a user types it, and its help."""
    settings = parameter.annotation.__metadata__[0]
    kind, text = parameter.annotation.__origin__, settings.help or ""
    metavar = settings.metavar or parameter.name.upper()
    if isinstance(settings, typer.models.ArgumentInfo):
        optional = parameter.default is not inspect.Parameter.empty and not settings.metavar
        return f"[{metavar}]" if optional else metavar, text
    option = next(iter(settings.param_decls or ()), f"--{parameter.name.replace('_', '-')}")
    return option if kind is bool else f"{option} {metavar}", text


def _flowed(text: str) -> str:
    """Return a docstring with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


PARTS: dict[str, Callable[[], str]] = {"rules": rules, "commands": commands, "costs": costs}
"""The generated parts by the name of their marker."""


def renewed(text: str) -> str:
    """Return the text with every generated part written anew; SystemExit for a marker that nobody knows."""

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
    """Renew the README, or say what is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail when something is stale")
    arguments = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    new = renewed(old)
    if arguments.check and new != old:
        sys.stdout.writelines(
            difflib.unified_diff(
                old.splitlines(True), new.splitlines(True), "README.md", "README.md, renewed"
            )
        )
        print("\nREADME.md is stale: run python scripts/update_docs.py")
        return 1
    if new != old:
        README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
