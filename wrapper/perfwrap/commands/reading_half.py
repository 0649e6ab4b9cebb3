"""What the recording commands need of the reading half, which is imported when it is needed.

Recording must start fast, and work where polars is missing. So these imports stand in functions. Polars starts
threads; before the command runs, it is imported with all signals blocked, which its threads inherit.
"""

from __future__ import annotations

from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.launch import signals
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say


def check_rule_names(rules: str, ignore: str, price: str = "") -> None:
    """Raise PerfwrapError for rules that do not exist, and a wrong price: before the command runs, not after it."""
    if rules or ignore or price:
        with signals.blocked():
            from perfwrap.commands.run_report import choose_rules

            choose_rules(rules, ignore, price)


def slowest_kernels(earlier: Path | None) -> tuple[str, ...]:
    """Return the functions that took longest on the GPU in an earlier run; PerfwrapError if none is known."""
    with signals.blocked():
        from perfwrap.commands.top_kernels import top_kernels

        return top_kernels(earlier)


def print_report(folder: Path, rules: str = "", ignore: str = "", price: str = "") -> None:
    """Print the report of a run that has ended; if that fails, print why and where the run is."""
    try:
        from perfwrap.analysis.joined_runs import end_part, has_many_ranks
        from perfwrap.commands.run_report import choose_rules, report_run

        whole = end_part(folder)
        if whole is None:
            return  # Another launcher of the same run prints the report.
        folder = whole
        if has_many_ranks(RunFolder(folder)):
            # The other launchers still write their tables; waiting for them would block this one.
            say(f"perfwrap: this run has many launchers; when all have ended: perfwrap report {folder}")
            return
        report_run(folder, choose_rules(rules, ignore, price))
    except (ImportError, PerfwrapError) as error:
        say(f"perfwrap: no report: {str(error).rstrip('.')}. To try again: perfwrap report {folder}")
        if hint := getattr(error, "hint", ""):
            say(f"  {hint}")
    except Exception as error:  # noqa: BLE001 - the caller may exit without a traceback, so it is printed here
        say(
            f"perfwrap: the report failed: {type(error).__name__}: {error}. This is a bug in perfwrap. Please report "
            f"it and attach the run folder: {folder}"
        )
