"""Write the generated parts of the documentation: the rules, the commands' help, and what recording costs.

    python scripts/update_docs.py            rewrite what stands between the markers
    python scripts/update_docs.py --check    change nothing; exit code 1 when something is stale

A part stands between ``<!-- rules -->`` and ``<!-- /rules -->`` in one of PAGES, and so on for the others of PARTS.
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
from perfwrap.rules.model import Rule

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = tuple(REPOSITORY / page for page in ("README.md", "docs/commands.md", "docs/rules.md"))
COSTS = REPOSITORY / "docs" / "overhead.json"
MARKER = re.compile(r"<!-- (?P<name>[a-z]+) -->\n(?P<old>.*?)<!-- /(?P=name) -->\n", re.DOTALL)


OPENS = {
    "shared_memory_limit": "Data loading",
    "explicit_synchronize": "Waiting for the GPU on the host",
    "checkpoint_stall": "What stands in the loop beside the model",
    "straggler_rank": "Several ranks",
    "slow_steps": "What stands in the loop beside the model",
    "thread_oversubscription": "Processors and memory of the machine",
    "allocator_retries": "Launches, copies and allocations",
    "exposed_communication": "Several ranks",
    "empty_cache_in_step": "Launches, copies and allocations",
    "tensor_cores_unused": "The GPU's kernels",
    "gpu_throttled": "The GPU itself",
    "debug_mode_enabled": "The run as a whole",
    "rank_restart": "Health: hangs, memory, numbers",
    "profiler_cost": "perfwrap itself",
}
"""The rules with which a group begins. RULES is in that order; a new rule joins the group of the one before it."""


def groups() -> dict[str, list[Rule]]:
    """Return the rules by their groups, each in the order of RULES."""
    from perfwrap.rules import RULES
    from perfwrap.rules.model import rule_id

    found: dict[str, list[Rule]] = {}
    title = ""
    for rule in RULES:
        title = OPENS.get(rule_id(rule), title)
        found.setdefault(title, []).append(rule)
    return found


def rules() -> str:
    """Return the table of rules, by group, each with a link to its page."""
    from perfwrap.reports.explanation import summary
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
    from perfwrap.reports.explanation import sections, summary
    from perfwrap.rules.model import rule_id
    from perfwrap.rules.thresholds import thresholds_of

    parts = [f"### `{rule_id(rule)}`", f"{_prose(summary(rule))}"]
    for heading, paragraphs in sections(rule).items():
        first, *rest = [_prose(paragraph) for paragraph in paragraphs]
        parts += [f"**{heading}.** {first}", *rest]
    thresholds = ", ".join(f"`{name.lower()} = {value:.12g}`" for name, value in thresholds_of(rule).items())
    return "\n\n".join([*parts, f"**Thresholds.** {thresholds}."] if thresholds else parts)


def _prose(text: str) -> str:
    """Return text of a docstring that Markdown shows as it is."""
    return re.sub(r"\b__\w+__\b", r"`\g<0>`", text).replace("<", "&lt;").replace("*", "\\*")


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
        parts.append("\n".join([f"## `{heading}`", "", _flowed(inspect.getdoc(function) or ""), *table]))
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


PARTS: dict[str, Callable[[], str]] = {"rules": rules, "pages": pages, "commands": commands, "costs": costs}
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
    """Renew the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail when something is stale")
    arguments = parser.parse_args()
    stale = [page for page in PAGES if _renew(page, arguments.check)]
    if stale and arguments.check:
        print(f"\n{', '.join(page.name for page in stale)}: stale. Run python scripts/update_docs.py")
        return 1
    return 0


def _renew(page: Path, only_check: bool) -> bool:
    """Write the page's generated parts anew, or show what would change; say whether anything does."""
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
