"""The report in a terminal: verdict first, then where the time goes, the findings, and what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path

from perfwrap import units
from perfwrap.diagnosis.model import NO_PHASES, UNKNOWN, Diagnosis, WholeRun
from perfwrap.experiments.changes import CEILING, CHANGES
from perfwrap.reports import ending_text, energy_text
from perfwrap.reports.command_line import PLACEHOLDER, as_typed, proof, training_command
from perfwrap.reports.cost import own_cost
from perfwrap.reports.excerpt import Excerpt, read_excerpt
from perfwrap.reports.gain import alternative, expected
from perfwrap.reports.run_context import kind_of, run_parts, run_places, run_shares, step_end
from perfwrap.reports.terminal.activity import draw_gpus, draw_phase_idle
from perfwrap.reports.terminal.checked import draw_checked
from perfwrap.reports.terminal.fleet_table import draw_fleet
from perfwrap.reports.terminal.kernels import draw_kernels
from perfwrap.reports.terminal.line_table import draw_lines
from perfwrap.reports.terminal.machine import draw_machine
from perfwrap.reports.terminal.memory_table import draw_memory
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.terminal.ranks import draw_ranks, trainers, training_processes
from perfwrap.rules.model import Finding, Location
from perfwrap.timeline.notebook_cells import at_line

TOP = 3
"""Findings in full; each other finding takes a line."""
UPPER_BOUNDS = {change.name for change in CHANGES if change.kind == CEILING}
"""Experiments that measure what a fix gains at most."""
MAX_OTHER_OPTIONS = 3
"""Options of a finding that are shown beside the best one; `perfwrap report --all` shows all."""

WHOLE = 1000
"""Shares are rounded to tenths of a per cent, which sum to 100.0 %."""

MARKS = {"outside": "░", "loop": "█", "inside": "▓"}
ASCII_MARKS = {"outside": ".", "loop": "#", "inside": "+"}
"""How the strip of the whole run is drawn: outside the loop, steady steps, other times inside the loop."""

STYLES = {"critical": "bold red", "major": "red", "minor": "yellow", "note": "dim"}
"""Colours by severity; the word itself is always printed."""


def draw(diagnosis: Diagnosis, folder: Path, page: Page, every: bool = False) -> None:
    """Draw the report onto the page; ``every``: all findings in full, and all rules that were not checked."""
    _heading(diagnosis, page)
    failure = ending_text.failure(diagnosis.run)
    if failure:
        page.paragraph(failure, style="bold red", indent=2)
        if diagnosis.verdict.id == "unknown" and not diagnosis.findings:
            # Why there is no verdict, and what was not checked, would only hide why the program failed.
            _foot(diagnosis, folder, page)
            return
        page.blank()
    page.paragraph(diagnosis.verdict.sentence, style="bold", indent=2)
    if diagnosis.whole_run is not None:
        page.blank()
        _whole_run(diagnosis, diagnosis.whole_run, page)
    if diagnosis.account:
        page.blank()
        _account(diagnosis, page)
    if diagnosis.line_account is not None:
        page.blank()
        draw_lines(diagnosis.line_account, diagnosis.run, page)
    if diagnosis.fleet is not None:
        page.blank()
        draw_fleet(diagnosis.fleet, page)
    else:
        draw_ranks(diagnosis, page)
    if diagnosis.gpu_activity:
        page.blank()
        draw_gpus(diagnosis.gpu_activity, page)
    if diagnosis.phase_idle is not None:
        page.blank()
        draw_phase_idle(diagnosis.phase_idle, page)
    if diagnosis.gpu_memory:
        page.blank()
        draw_memory(diagnosis.gpu_memory, page)
    if diagnosis.kernels:
        page.blank()
        draw_kernels(diagnosis.kernels, page)
    top = len(diagnosis.findings) if every else TOP
    for number, finding in enumerate(diagnosis.findings[:top], start=1):
        page.blank()
        _finding(number, finding, diagnosis, page, every)
    _others(diagnosis.findings[top:], page)
    _would_not_help(diagnosis, page)
    draw_machine(diagnosis, page)
    if sentences := energy_text.sentences(diagnosis):
        page.blank()
        for sentence in sentences:
            page.paragraph(sentence)
    page.blank()
    draw_checked(diagnosis.outcomes, page, every)
    _foot(diagnosis, folder, page)


def next_command(diagnosis: Diagnosis, folder: Path, columns: int = 80) -> str:
    """Return the command to run next; in a longer line than ``columns``, CMD stands for the training command."""
    command = training_command(diagnosis.run)

    def before(start: str) -> str:
        whole = f"{start} -- {command}"
        return whole if len(whole) <= columns else f"{start} -- {PLACEHOLDER}"

    wasteful = [finding for finding in diagnosis.findings if not finding.informational]
    first = next(iter(wasteful or diagnosis.findings), None)
    measured = proof(_experiment(first)) if wasteful and first is not None else ""
    if measured:
        return before(measured)
    if diagnosis.run.get("attached"):
        return f"perfwrap explain {first.rule}" if wasteful and first is not None else before("perfwrap run")
    if ending_text.failure(diagnosis.run) and not wasteful:
        return before("perfwrap run")
    if diagnosis.verdict.id == "unknown" and not wasteful:
        return "perfwrap doctor"
    if first is None:
        return f"perfwrap report {shlex.quote(str(folder))}"
    if (
        diagnosis.verdict.id == "compute-bound"
        and diagnosis.line_account is None
        and can_inspect(diagnosis.run)
    ):
        return before("perfwrap inspect")
    return (
        before(f"perfwrap run {first.rerun_options}")
        if first.rerun_options
        else f"perfwrap explain {first.rule}"
    )


def _experiment(finding: Finding) -> str | None:
    """Return the experiment of the best option; where it is only an upper bound, that of an option with a fix."""
    tried = [option.experiment for option in finding.options if option.experiment]
    fixes = [experiment for experiment in tried if experiment not in UPPER_BOUNDS]
    return fixes[0] if finding.experiment in UPPER_BOUNDS and fixes else finding.experiment


def can_inspect(run: dict[str, object]) -> bool:
    """Return whether `perfwrap inspect` can be run on the command, and was not."""
    options = run.get("options")
    return "imported" not in run and isinstance(options, dict) and not options.get("inspect")


def _heading(diagnosis: Diagnosis, page: Page) -> None:
    """Draw what was run, for how long, and how it ended."""
    run = diagnosis.run
    command = as_typed([str(word) for word in run.get("command") or ()])
    ended = " · ".join(text for text in (_wall(run), ending_text.sentence(run)) if text)
    page.line(("perfwrap", "bold"), (f"  {page.fitted(command, page.width - 12)}", ""))
    if ended:
        page.paragraph(ended, style="dim", indent=10)
    page.blank()


def _wall(run: dict[str, object]) -> str:
    """Return the duration of the run."""
    start, end = run.get("start"), run.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict):
        return ""
    verb = "watched for" if run.get("attached") else "ran"
    return f"{verb} {units.duration(end['monotonic_ns'] - start['monotonic_ns'])}"


def _trainers(diagnosis: Diagnosis) -> str:
    """Return the number of training processes."""
    if diagnosis.fleet is not None:
        return training_processes(len(diagnosis.all_ranks))
    return trainers(diagnosis)


def _account(diagnosis: Diagnosis, page: Page) -> None:
    """Draw the parts of the training loop as bars; their shares sum to 100.0 %."""
    steps = diagnosis.steps
    page.paragraph(
        f"Where the time of a step goes: {units.counted(steps.steady, 'steady step')} of "
        f"{units.count(steps.count)}, "
        f"median {units.duration(steps.median_ns, 3)}, p99 {units.duration(steps.p99_ns, 3)}"
        + (f", {units.rate(steps.samples_per_s, 'samples')}" if steps.samples_per_s else "")
        + (f", {_trainers(diagnosis)}" if len(diagnosis.all_ranks) > 1 else ""),
        style="bold",
    )
    if ends := step_end(diagnosis):
        page.line((f"A step ends with each {ends}.", "dim"), indent=2)
    tenths = units.apportion({part: float(value) for part, value in diagnosis.account.items()}, WHOLE)
    for part, value in sorted(tenths.items(), key=lambda item: -item[1]):
        if value:
            bar = page.bar(value / WHOLE, page.width - 26)
            page.line((f"{part:<12}", ""), (f"{value / 10:>6.1f} %  ", ""), (bar, "cyan"), indent=2)
    if UNKNOWN in tenths:
        page.paragraph(NO_PHASES, style="dim", indent=2)


def _whole_run(diagnosis: Diagnosis, run: WholeRun, page: Page) -> None:
    """Draw the parts of the whole run as one strip, and the costliest places outside the loop."""
    page.paragraph(f"Whole run: {units.duration(run.total_ns)}", style="bold")
    shares = run_shares(run)
    columns = units.apportion({part: float(share) for part, share in shares.items()}, page.width - 4)
    marks = ASCII_MARKS if page.ascii_only else MARKS
    strip = [
        (marks[kind_of(part)] * columns[part], "cyan" if kind_of(part) == "loop" else "") for part in shares
    ]
    page.line(*strip, indent=2)
    page.paragraph(f"{run_parts(run)}.", indent=2)
    places = run_places(diagnosis)
    if places:
        page.paragraph(places, indent=2)


def _finding(number: int, finding: Finding, diagnosis: Diagnosis, page: Page, every: bool) -> None:
    """Draw one finding: its best option with details, and others in a sentence each; all of them with ``every``."""
    share = "" if finding.share <= 0 else f", {units.share(finding.share)} of {finding.scope.value}"
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
    gain = expected(finding)
    if gain:
        page.paragraph(gain, indent=3, hanging="Gain: ")
    others = finding.options[1:]
    for option in others if every else others[:MAX_OTHER_OPTIONS]:
        if every:
            page.paragraph(alternative(option), indent=3, hanging="Or:   ")
        else:
            page.paragraph(alternative(option, page.width - 9), indent=3, hanging="Or:   ")


def _excerpt(location: Location, diagnosis: Diagnosis, page: Page) -> None:
    """Draw the lines of the program that a finding names."""
    directory = str(diagnosis.run.get("cwd") or ".")
    name = _relative(location.file, directory)
    page.line((at_line(page.fitted(name, page.width - 12), location.line), "underline"), indent=3)
    excerpt = read_excerpt(location, diagnosis.run)
    if excerpt is None:
        return
    digits = max(len(str(number)) for number, _ in excerpt.lines)
    above = excerpt.lines[0][0] - 1
    for number, text in excerpt.lines:
        if number < above:
            page.line((f"{'':>{digits}} │ ", "dim"), ("(next iteration)", "dim"), indent=5)
        above = number
        shown = page.clipped(text, page.width - digits - 8)
        page.line((f"{number:>{digits}} │ ", "dim"), (shown, "cyan"), indent=5)
    note = _excerpt_note(excerpt)
    if note:
        page.line((note, "dim"), indent=5)


def _relative(file: str, directory: str) -> str:
    """Return the path relative to the working directory, if the file is below it."""
    return file.removeprefix(f"{directory.rstrip('/')}/")


def _excerpt_note(excerpt: Excerpt) -> str:
    """Return remarks about the lines."""
    notes = []
    if excerpt.left_out:
        notes.append(f"{units.counted(excerpt.left_out, 'more line')}")
    if excerpt.changed:
        notes.append("the file has changed since the run")
    return f"({'; '.join(notes)})" if notes else ""


def _others(findings: tuple[Finding, ...], page: Page) -> None:
    """Draw a line for each other finding."""
    if not findings:
        return
    page.blank()
    page.line(("Other findings (in full: perfwrap report --all)", "bold"))
    for finding in findings:
        page.paragraph(f"{finding.rule} ({finding.severity}): {finding.sentence}", indent=2, hanging="- ")


def _would_not_help(diagnosis: Diagnosis, page: Page) -> None:
    """Draw a line for each popular advice that would bring little."""
    if not diagnosis.would_not_help:
        return
    page.blank()
    page.line(("Would not help:", "bold"))
    for each in diagnosis.would_not_help:
        page.paragraph(each.sentence, indent=2, hanging="- ")


def _foot(diagnosis: Diagnosis, folder: Path, page: Page) -> None:
    """Draw the overhead of perfwrap, the warnings, the run folder, and the next command."""
    cost = own_cost(diagnosis)
    if cost:
        page.paragraph(cost)
    for note in dict.fromkeys(diagnosis.windows):
        excluded = "; these steps are excluded above" if "tools/" in note else ""
        page.paragraph(f"{note}{excluded}.", hanging="torch.profiler: ")
    for warning in diagnosis.warnings:
        page.paragraph(warning, hanging="Warning: ")
    page.blank()
    page.line(("Run folder: ", ""), (str(folder), ""))
    room = page.width - len("Next: ")
    page.line(("Next: ", ""), (next_command(diagnosis, folder, room), "bold"))
