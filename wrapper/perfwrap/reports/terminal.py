"""The diagnosis in a terminal: verdict first, then where the time goes, the findings, and what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePath

from perfwrap import units
from perfwrap.diagnosis import UNKNOWN, UNTOLD, Diagnosis
from perfwrap.reports import ending
from perfwrap.reports.activity import draw_gpus
from perfwrap.reports.excerpt import Excerpt, read_excerpt
from perfwrap.reports.fleet import draw_fleet
from perfwrap.reports.kernels import draw_kernels
from perfwrap.reports.machine import draw_machine
from perfwrap.reports.memory import draw_memory
from perfwrap.reports.page import Page
from perfwrap.reports.ranks import draw_ranks, trainers
from perfwrap.rules.model import Finding, Location, Outcome

MOST_NAMED = 4
"""Rules that are named in one line about what was not found."""

TOP = 3
"""Findings that are told in full; the others get a line each."""

MOST_COMMAND = 40
"""Characters of a program's command that is repeated in one to be typed."""

WHOLE = 1000
"""Shares of the account are told in tenths of a per cent and sum to 100.0 %."""

STYLES = {"critical": "bold red", "major": "red", "minor": "yellow", "note": "dim"}
"""Colours by severity; the word itself is always there."""


def draw(diagnosis: Diagnosis, folder: Path, page: Page) -> None:
    """Draw the whole report onto the page."""
    _heading(diagnosis, page)
    page.paragraph(diagnosis.verdict.sentence, style="bold", indent=2)
    if diagnosis.account:
        page.blank()
        _account(diagnosis, page)
    if diagnosis.fleet is not None:
        page.blank()
        draw_fleet(diagnosis.fleet, page)
    else:
        draw_ranks(diagnosis, page)
    if diagnosis.gpu_activity:
        page.blank()
        draw_gpus(diagnosis.gpu_activity, page)
    if diagnosis.gpu_memory:
        page.blank()
        draw_memory(diagnosis.gpu_memory, page)
    if diagnosis.kernels:
        page.blank()
        draw_kernels(diagnosis.kernels, page)
    for number, finding in enumerate(diagnosis.findings[:TOP], start=1):
        page.blank()
        _finding(number, finding, diagnosis, page)
    _others(diagnosis.findings[TOP:], page)
    draw_machine(diagnosis, page)
    page.blank()
    _checked(diagnosis.outcomes, page)
    _foot(diagnosis, folder, page)


def next_command(diagnosis: Diagnosis, folder: Path) -> str:
    """Return the one command to try next."""
    wasteful = [finding for finding in diagnosis.findings if not finding.benign]
    if wasteful:
        return f"perfwrap explain {wasteful[0].rule}"
    if diagnosis.run.get("attached"):
        return "perfwrap run -- COMMAND"
    if diagnosis.verdict.id == "unknown":
        return "perfwrap doctor"
    if diagnosis.findings:
        first = diagnosis.findings[0]
        return _again(first.look_closer, diagnosis) if first.look_closer else f"perfwrap explain {first.rule}"
    return f"perfwrap report {shlex.quote(str(folder))}"


def _again(options: str, diagnosis: Diagnosis) -> str:
    """Return the command that runs the program again with these options; COMMAND stands for a long one."""
    words = () if "imported" in diagnosis.run else diagnosis.run.get("command") or ()
    command = shlex.join(str(word) for word in words)
    return f"perfwrap run {options} -- {command if 0 < len(command) <= MOST_COMMAND else 'COMMAND'}"


def _heading(diagnosis: Diagnosis, page: Page) -> None:
    """Say what was run, for how long, and how it ended."""
    run = diagnosis.run
    command = _command([str(word) for word in run.get("command") or ()])
    ended = " · ".join(text for text in (_wall(run), ending.sentence(run)) if text)
    page.line(("perfwrap", "bold"), (f"  {page.fitted(command, page.width - 12)}", ""))
    if ended:
        page.paragraph(ended, style="dim", indent=10)
    page.blank()


def _command(words: list[str]) -> str:
    """Return the command as it could be typed, its program without the folder that it lies in."""
    return shlex.join([PurePath(words[0]).name, *words[1:]]) if words else ""


def _wall(run: dict[str, object]) -> str:
    """Return how long the run took."""
    start, end = run.get("start"), run.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict):
        return ""
    verb = "watched for" if run.get("attached") else "ran"
    return f"{verb} {units.duration(end['monotonic_ns'] - start['monotonic_ns'])}"


def _trainers(diagnosis: Diagnosis) -> str:
    """Return how many processes train."""
    if diagnosis.fleet is not None:
        return units.counted(len(diagnosis.all_ranks), "trainer")
    return trainers(diagnosis)


def _account(diagnosis: Diagnosis, page: Page) -> None:
    """Draw the parts of the training loop as bars; their figures sum to 100.0 %."""
    steps = diagnosis.steps
    page.paragraph(
        f"Where the time of a step goes: {units.counted(steps.steady, 'steady step')} of "
        f"{units.count(steps.count)}, "
        f"median {units.duration(steps.median_ns, 3)}, p99 {units.duration(steps.p99_ns, 3)}"
        + (f", {units.rate(steps.samples_per_s, 'samples')}" if steps.samples_per_s else "")
        + (f", {_trainers(diagnosis)}" if len(diagnosis.all_ranks) > 1 else ""),
        style="bold",
    )
    if "imported" in diagnosis.run and steps.anchor:
        page.line((f"A step ends with each {steps.anchor}.", "dim"), indent=2)
    tenths = units.apportion({part: float(value) for part, value in diagnosis.account.items()}, WHOLE)
    for part, value in sorted(tenths.items(), key=lambda item: -item[1]):
        if value:
            bar = page.bar(value / WHOLE, page.width - 26)
            page.line((f"{part:<12}", ""), (f"{value / 10:>6.1f} %  ", ""), (bar, "cyan"), indent=2)
    if UNKNOWN in tenths:
        page.paragraph(UNTOLD, style="dim", indent=2)


def _finding(number: int, finding: Finding, diagnosis: Diagnosis, page: Page) -> None:
    """Tell one finding in full."""
    of = "the run" if finding.of_run else "GPU time" if finding.of_window else "the loop"
    share = "" if finding.share <= 0 else f", {units.share(finding.share)} of {of}"
    page.line(
        (f"{number}. {finding.rule}", "bold"),
        ("  ", ""),
        (finding.severity + share, STYLES[finding.severity]),
    )
    if finding.sentence not in diagnosis.verdict.sentence:
        page.paragraph(finding.sentence, indent=3)
    if finding.location is not None:
        _excerpt(finding.location, diagnosis, page)
    for sentence in finding.evidence:
        page.paragraph(sentence, indent=3, hanging="- ")
    page.paragraph(finding.advice, indent=3, hanging="Fix:  ")
    if finding.saving[0] < 0.995:
        gain = units.saving(*finding.saving)
        page.paragraph(f"{gain}; {finding.confidence}", indent=3, hanging="Gain: ")


def _excerpt(location: Location, diagnosis: Diagnosis, page: Page) -> None:
    """Show the lines that a finding names."""
    directory = str(diagnosis.run.get("cwd") or ".")
    name = _relative(location.file, directory)
    page.line((f"{page.fitted(name, page.width - 12)}:{location.line}", "underline"), indent=3)
    end = diagnosis.run.get("end")
    excerpt = read_excerpt(location, directory, end.get("wall_ns") if isinstance(end, dict) else None)
    if excerpt is None:
        return
    digits = max(len(str(number)) for number, _ in excerpt.lines)
    above = excerpt.lines[0][0] - 1
    for number, text in excerpt.lines:
        if number < above:
            page.line((f"{'':>{digits}} │ ", "dim"), ("(next round)", "dim"), indent=5)
        above = number
        shown = page.clipped(text, page.width - digits - 8)
        page.line((f"{number:>{digits}} │ ", "dim"), (shown, "cyan"), indent=5)
    note = _excerpt_note(excerpt)
    if note:
        page.line((note, "dim"), indent=5)


def _relative(file: str, directory: str) -> str:
    """Return the path from where the command was started, when the file lies below."""
    return file.removeprefix(f"{directory.rstrip('/')}/")


def _excerpt_note(excerpt: Excerpt) -> str:
    """Return what to know about the lines."""
    notes = []
    if excerpt.left_out:
        notes.append(f"{units.counted(excerpt.left_out, 'more line')}")
    if excerpt.changed:
        notes.append("the file has changed since the run")
    return f"({'; '.join(notes)})" if notes else ""


def _others(findings: tuple[Finding, ...], page: Page) -> None:
    """Give each of the other findings a line."""
    if not findings:
        return
    page.blank()
    page.line(("Also found", "bold"))
    for finding in findings:
        page.paragraph(f"{finding.rule} ({finding.severity}): {finding.sentence}", indent=2, hanging="- ")


def _checked(outcomes: tuple[Outcome, ...], page: Page) -> None:
    """Say what was clear, what could not be checked and why, and what failed."""
    clear = [outcome.rule for outcome in outcomes if outcome.state == "clear"]
    if clear:
        page.paragraph(_listed(clear), hanging="Clear: ")
    reasons: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.state in ("not checked", "failed"):
            reasons.setdefault((outcome.state, outcome.why), []).append(outcome.rule)
    for (state, why), rules in reasons.items():
        page.paragraph(f"{_listed(rules)}: {why}", hanging=f"{state.capitalize()}: ")


def _listed(rules: list[str]) -> str:
    """Return the rules' names; of many only the first, since diagnosis.json and report.html name all."""
    if len(rules) <= MOST_NAMED + 1:
        return ", ".join(rules)
    return f"{', '.join(rules[:MOST_NAMED])} and {units.count(len(rules) - MOST_NAMED)} more"


def _foot(diagnosis: Diagnosis, folder: Path, page: Page) -> None:
    """Tell perfwrap's own cost, the warnings, the run folder, and the next command."""
    cost = diagnosis.perfwrap_cost
    if cost is not None and diagnosis.account:
        monitors = (
            ""
            if cost.monitor_cores is None
            else f", its monitors {units.share(cost.monitor_cores)} of a core"
        )
        how = "measured against steps without its probes" if cost.measured else "estimated"
        page.paragraph(
            f"perfwrap itself took {units.share(cost.share)} of the loop ({units.share(cost.low)} to "
            f"{units.share(cost.high)}, {how}){monitors}."
        )
    for note in dict.fromkeys(diagnosis.windows):
        left_out = "; these steps are in no figure above" if "tools/" in note else ""
        page.paragraph(f"{note}{left_out}.", hanging="PyTorch's profiler: ")
    for warning in diagnosis.warnings:
        page.paragraph(warning, hanging="Warning: ")
    page.blank()
    page.line(("Run folder: ", ""), (str(folder), ""))
    page.line(("Next: ", ""), (next_command(diagnosis, folder), "bold"))
