"""What a user has settled about the rules, in a file of the project or by options.

    ignore = ["slow_start"]          # rules that shall not be asked
    rules = ["data_loader_wait"]     # or else: only these shall

    [thresholds.slow_steps]          # any of those that `perfwrap explain slow_steps` lists
    spread = 2.0

This is ``perfwrap.toml``; in ``pyproject.toml`` the same stands below ``[tool.perfwrap]``. The file nearest to where
perfwrap is run counts, from that folder upwards.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError
from perfwrap.private_files import read_plain
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id
from perfwrap.rules.thresholds import Thresholds, thresholds_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE, PROJECT_FILE = "perfwrap.toml", "pyproject.toml"
MOST_BYTES = 16 << 20
KEYS = ("rules", "ignore", "thresholds")


@dataclass(frozen=True)
class Choice:
    """Which rules shall be asked, and by which thresholds."""

    skipped: Mapping[str, str] = field(default_factory=dict)
    """Rules that shall not be asked, and who said so."""
    thresholds: Thresholds = field(default_factory=dict)


def choose(start: Path, only: Iterable[str] = (), ignored: Iterable[str] = ()) -> Choice:
    """Return what the file nearest to ``start`` and the options ``--rules`` and ``--ignore`` ask for.

    Options go before the file. PerfwrapError for a file that cannot be read, and for names that there are not.
    """
    path, settled = _find(start)
    unknown = [key for key in settled if key not in KEYS]
    if unknown:
        raise PerfwrapError(
            f"{path}: perfwrap knows nothing of {unknown[0]!r}.", f"It reads {', '.join(KEYS)}."
        )
    skipped: dict[str, str] = {}
    file_only = _names(settled.get("rules", []), f"rules of {path}")
    file_ignored = _names(settled.get("ignore", []), f"ignore of {path}")
    option_only = _names(list(only), "--rules")
    for rule in map(rule_id, RULES):
        if option_only and rule not in option_only:
            skipped[rule] = "left out by --rules"
        elif rule in _names(list(ignored), "--ignore"):
            skipped[rule] = "ignored by --ignore"
        elif not option_only and (rule in file_ignored or (file_only and rule not in file_only)):
            skipped[rule] = f"{'ignored' if rule in file_ignored else 'left out'} by {path.name}"
    return Choice(skipped, _thresholds(settled.get("thresholds", {}), path))


def _find(start: Path) -> tuple[Path, dict[str, Any]]:
    """Return the nearest file that speaks of perfwrap, and what it says; nothing where there is none."""
    for folder in (start.resolve(), *start.resolve().parents):
        own, project = folder / OWN_FILE, folder / PROJECT_FILE
        if own.is_file():
            return own, _load(own)
        if project.is_file():
            settled = _load(project).get("tool", {}).get("perfwrap")
            if isinstance(settled, dict):
                return project, settled
    return start / OWN_FILE, {}


def _load(path: Path) -> dict[str, Any]:
    """Return a TOML file's content."""
    try:
        content: dict[str, Any] = tomllib.loads(read_plain(path, MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PerfwrapError(f"{path} cannot be read: {error}", "Mend the file, or move it away.") from error
    return content


def _names(given: object, where: str) -> tuple[str, ...]:
    """Return names of rules; PerfwrapError where one is none."""
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise PerfwrapError(f"The {where} must be a list of rules' names.", 'For example: ["slow_start"]')
    known = [rule_id(rule) for rule in RULES]
    for name in given:
        _demand(name, known, f"There is no rule {name!r} ({where}).", "`perfwrap explain` lists all rules.")
    return tuple(given)


def _thresholds(given: object, path: Path) -> Thresholds:
    """Return the thresholds by the names of the constants; PerfwrapError for what cannot be one."""
    rules = {rule_id(rule): rule for rule in RULES}
    found: dict[str, dict[str, float]] = {}
    if not isinstance(given, dict) or not all(isinstance(values, dict) for values in given.values()):
        raise PerfwrapError(
            f"{path}: thresholds stand below the rule's name.", "For example: [thresholds.slow_steps]"
        )
    for rule, values in given.items():
        _demand(
            rule, list(rules), f"{path}: there is no rule {rule!r}.", "`perfwrap explain` lists all rules."
        )
        known = {name.lower(): value for name, value in thresholds_of(rules[rule]).items()}
        for name, value in values.items():
            hint = f"`perfwrap explain {rule}` lists its thresholds."
            _demand(name, list(known), f"{path}: {rule} has no threshold {name!r}.", hint)
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise PerfwrapError(
                    f"{path}: {rule}.{name} is {value!r}, which is no number from 0 on.", hint
                )
            if name.endswith("share") and value > 1:
                raise PerfwrapError(
                    f"{path}: {rule}.{name} is {value!r}, but a share is at most 1.", "20 % is 0.2."
                )
            found.setdefault(rule, {})[name.upper()] = value
    return found


def _demand(name: str, known: list[str], message: str, otherwise: str) -> None:
    """Raise PerfwrapError with the names that are spelled alike where the name is not known."""
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        raise PerfwrapError(message, f"Did you mean {' or '.join(close)}?" if close else otherwise)
