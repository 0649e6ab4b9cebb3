"""The user's choice of rules and thresholds, from a file of the project or from options.

    ignore = ["slow_start"]          # rules to skip
    rules = ["data_loader_wait"]     # or: run only these rules

    price = "0.30EUR/kWh"            # or of the machine, "12.5USD/h": the report shows what the run costs

    [thresholds.slow_steps]          # any of those that `perfwrap explain slow_steps` lists
    min_spread = 2.0

This is ``perfwrap.toml``; in ``pyproject.toml`` the same is below ``[tool.perfwrap]``. The nearest file counts, from
the current folder upwards.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from perfwrap.diagnosis.prices import Price, parse_price
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import read_plain
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id
from perfwrap.rules.thresholds import Thresholds, thresholds_of

OWN_FILE, PROJECT_FILE = "perfwrap.toml", "pyproject.toml"
MAX_BYTES = 16 << 20
KEYS = ("rules", "ignore", "thresholds", "price")


class Choice(Struct, frozen=True):
    """Which rules run, with which thresholds, and the user's price."""

    skipped: Mapping[str, str] = field(default_factory=dict)
    """The rules to skip, and by which setting."""
    thresholds: Thresholds = field(default_factory=dict)
    price: Price | None = None


def choose_here(only: Iterable[str] = (), ignored: Iterable[str] = (), price: str = "") -> Choice:
    """Return which rules run, from the settings nearest to the current folder and from options."""
    try:
        place = Path.cwd()
    except FileNotFoundError:
        place = Path("/")  # The current directory has been deleted: it has no settings.
    return choose(place, only, ignored, price)


def choose(start: Path, only: Iterable[str] = (), ignored: Iterable[str] = (), price: str = "") -> Choice:
    """Return which rules run, from the file nearest to ``start`` and the options --rules, --ignore and --price.

    Options take precedence over the file. PerfwrapError for a file that cannot be read, and for unknown names.
    """
    path, settings = _find(start)
    unknown = [key for key in settings if key not in KEYS]
    if unknown:
        raise PerfwrapError(f"{path}: unknown key {unknown[0]!r}.", f"Use one or more of: {', '.join(KEYS)}.")
    skipped: dict[str, str] = {}
    file_only = _names(settings.get("rules", []), f"rules of {path}")
    file_ignored = _names(settings.get("ignore", []), f"ignore of {path}")
    option_only = _names(list(only), "--rules")
    for rule in map(rule_id, RULES):
        if option_only and rule not in option_only:
            skipped[rule] = "left out by --rules"
        elif rule in _names(list(ignored), "--ignore"):
            skipped[rule] = "ignored by --ignore"
        elif not option_only and (rule in file_ignored or (file_only and rule not in file_only)):
            skipped[rule] = f"{'ignored' if rule in file_ignored else 'left out'} by {path.name}"
    return Choice(skipped, _thresholds(settings.get("thresholds", {}), path), _price(price, settings, path))


def _price(given: str, settings: dict[str, Any], path: Path) -> Price | None:
    """Return the price of the option or, without it, of the file."""
    return parse_price(given, "--price") or parse_price(str(settings.get("price", "")), f"price of {path}")


def _find(start: Path) -> tuple[Path, dict[str, Any]]:
    """Return the nearest file with settings of perfwrap, and these settings; empty without such a file."""
    for folder in (start.resolve(), *start.resolve().parents):
        own, project = folder / OWN_FILE, folder / PROJECT_FILE
        if own.is_file():
            return own, _load(own)
        if project.is_file():
            settings = _load(project).get("tool", {}).get("perfwrap")
            if isinstance(settings, dict):
                return project, settings
    return start / OWN_FILE, {}


def _load(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    # Imported here because most folders have no such file.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(read_plain(path, MAX_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PerfwrapError(f"{path} cannot be read: {error}", "Fix the file, or remove it.") from error
    return content


def _names(given: object, where: str) -> tuple[str, ...]:
    """Return names of rules; PerfwrapError for an unknown one."""
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise PerfwrapError(f"The {where} must be a list of rule names.", 'For example: ["slow_start"]')
    known = [rule_id(rule) for rule in RULES]
    for name in given:
        _require(name, known, f"There is no rule {name!r} ({where}).", "`perfwrap explain` lists all rules.")
    return tuple(given)


def _thresholds(given: object, path: Path) -> Thresholds:
    """Return the thresholds by rule and name; PerfwrapError for an invalid one."""
    rules = {rule_id(rule): rule for rule in RULES}
    found: dict[str, dict[str, float]] = {}
    if not isinstance(given, dict) or not all(isinstance(values, dict) for values in given.values()):
        raise PerfwrapError(
            f"{path}: thresholds must be in a table with the name of their rule.",
            "For example: [thresholds.slow_steps]",
        )
    for rule, values in given.items():
        _require(
            rule, list(rules), f"{path}: there is no rule {rule!r}.", "`perfwrap explain` lists all rules."
        )
        known = thresholds_of(rules[rule])
        for name, value in values.items():
            hint = f"`perfwrap explain {rule}` lists its thresholds."
            _require(name, list(known), f"{path}: {rule} has no threshold {name!r}.", hint)
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise PerfwrapError(
                    f"{path}: {rule}.{name} is {value!r}, but must be a finite number, 0 or larger.", hint
                )
            if name.endswith("share") and value > 1:
                raise PerfwrapError(
                    f"{path}: {rule}.{name} is {value!r}, but a share is at most 1.", "20 % is 0.2."
                )
            found.setdefault(rule, {})[name] = value
    return found


def _require(name: str, known: list[str], message: str, otherwise: str) -> None:
    """Raise PerfwrapError with similar names if the name is unknown."""
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        raise PerfwrapError(message, f"Did you mean {' or '.join(close)}?" if close else otherwise)
