"""The Python API: diagnose and compare recorded runs in a script or a notebook. Described in docs/python-api.md."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from perfwrap import units
from perfwrap.analysis import run_names
from perfwrap.analysis.run_reader import diagnose_run, diagnose_timeline, read_files
from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.comparing import compare as compare_sides
from perfwrap.comparison.obstacles import allowances, demand_different
from perfwrap.diagnosis.configuration import choose_here
from perfwrap.diagnosis.model import Diagnosis, StepFigures, Verdict
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere
from perfwrap.reports import json as json_report
from perfwrap.reports.gain import alternative
from perfwrap.rules.model import Finding, Outcome
from perfwrap.run_folder import MANIFEST, RunFolder
from perfwrap.sources import files
from perfwrap.timeline.model import Timeline

Table = Literal["steps", "account", "lines", "samples"]
RunPath = str | os.PathLike[str]

LINE_PARTS = ("forward", "backward", "optimizer", "python", "data")
LINES: dict[str, Any] = {
    "file": pl.String,
    "cell": pl.Int64,
    "line": pl.Int64,
    "function": pl.String,
    "ns": pl.Int64,
    "share": pl.Float64,
    **dict.fromkeys(LINE_PARTS, pl.Int64),
    "operations": pl.Int64,
    "kinds": pl.List(pl.String),
    "shape": pl.String,
    "module": pl.String,
}
"""The columns of the table of lines."""


@dataclass(frozen=True)
class Analysis:
    """The diagnosis of one run. Times are in nanoseconds, shares from 0 to 1."""

    name: str
    """The run's name, that of its folder, or of the first imported file."""
    diagnosis: Diagnosis = field(repr=False)
    timeline: Timeline = field(repr=False, compare=False)
    """Everything that was recorded: tables of polars on one clock."""

    @property
    def verdict(self) -> Verdict:
        """What slows the run down, in one word and one sentence."""
        return self.diagnosis.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The problems that were found, the most expensive first."""
        return self.diagnosis.findings

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcome of each rule: found, clear, not checked (and why), or failed."""
        return self.diagnosis.outcomes

    @property
    def account(self) -> dict[str, float]:
        """The share of each part in the training loop; the sum is exactly 1, empty without a steady loop."""
        return json_report.account_shares(self.diagnosis.account)

    @property
    def steps(self) -> StepFigures:
        """The number of steps, and the durations of the steady ones."""
        return self.diagnosis.steps

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``diagnosis.json`` as plain values."""
        return json_report.document(self.diagnosis)

    def to_polars(self, table: Table = "steps") -> pl.DataFrame:
        """Return a table of the run.

        ``steps``: a row per training step, with ``trainer``, ``rank``, ``index``, ``start`` and ``end`` (ns on the
        timeline's clock), ``duration`` (ns), ``steady`` and more. ``account``: ``part``, ``ns`` and ``share`` of the
        training loop. ``lines``: a row per line of the program for one step, the most expensive first, if its
        operations were recorded (``perfwrap run --inspect``): ``file``, ``line``, ``function``, ``ns``, ``share`` of
        the step, the parts ``forward``, ``backward``, ``optimizer``, ``python`` and ``data`` (ns), and more.
        ``samples``: what the monitors measured, with ``time`` (ns), ``host``, ``entity``, ``metric``, ``unit``,
        ``value`` and ``source``. PerfwrapError for any other name.
        """
        if table == "steps":
            return self._steps()
        if table == "account":
            return self._account()
        if table == "lines":
            return self._lines()
        if table == "samples":
            return self._samples()
        raise PerfwrapError(f"There is no table {table!r}.", "Use one of: steps, account, lines, samples.")

    def _steps(self) -> pl.DataFrame:
        threads = {row["id"]: row for row in self.timeline.tracks.iter_rows(named=True)}
        tables = []
        for track, table in self.diagnosis.step_tables.items():
            process = threads.get(threads[track]["parent"], threads[track])
            who = (
                pl.lit(process["name"]).alias("trainer"),
                pl.lit(process["rank"], dtype=pl.Int32).alias("rank"),
            )
            tables.append(table.select(*who, pl.all()))
        return pl.concat(tables) if tables else pl.DataFrame()

    def _account(self) -> pl.DataFrame:
        shares = self.account
        rows = [(part, ns, shares.get(part, 0.0)) for part, ns in self.diagnosis.account.items()]
        schema = {"part": pl.String, "ns": pl.Int64, "share": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _lines(self) -> pl.DataFrame:
        account = self.to_dict()["line_account"]
        rows = [
            {
                **{name: row.get(name) for name in LINES},
                **{part: row["parts_ns"].get(part, 0) for part in LINE_PARTS},
                "kinds": list(row["kinds"]),
            }
            for row in (account["lines"] if account else ())
        ]
        return pl.DataFrame(rows, schema=LINES)

    def _samples(self) -> pl.DataFrame:
        tracks = self.timeline.tracks
        counters = tracks.select(
            pl.col("id").alias("track"), pl.col("name").alias("metric"), "unit", "host", "parent"
        )
        owners = tracks.select(pl.col("id").alias("parent"), pl.col("name").alias("entity"))
        joined = self.timeline.samples.join(counters, on="track").join(owners, on="parent", how="left")
        return joined.select("time", "host", "entity", "metric", "unit", "value", "source").sort("time")

    def _repr_html_(self) -> str:
        """Return the verdict, the breakdown of the step time and the findings for a notebook."""
        account = " · ".join(
            f"{html.escape(part)} {units.share(share)}"
            for part, share in sorted(self.account.items(), key=lambda each: -each[1])
            if share >= 0.005
        )
        rows = "".join(
            f"<tr><td>{html.escape(finding.rule)}</td><td>{html.escape(finding.severity)}</td>"
            f"<td>{html.escape(str(finding.location or ''))}</td>"
            f"<td style='text-align:left'>{html.escape(finding.sentence)}<br><b>Fix:</b> "
            f"{html.escape(finding.advice)}"
            + "".join(f"<br>Or: {html.escape(alternative(option))}" for option in finding.options[1:])
            + "</td></tr>"
            for finding in self.findings
        )
        table = (
            "<table><thead><tr><th>rule</th><th>severity</th><th>line</th><th>finding</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
            if rows
            else ""
        )
        return (
            f"<div><p><b>{html.escape(self.name)}</b>: {html.escape(self.verdict.sentence)}</p>"
            f"<p>{account}</p>{table}</div>"
        )


def analyze(
    run: RunPath | Sequence[RunPath] = run_names.LATEST,
    *,
    rules: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Analysis:
    """Diagnose a run: a run folder, the name of a run, or one or more files of other profilers.

    ``rules`` are the only rules to check, ``ignore`` those to leave out, in addition to the settings of pyproject.toml.
    Nothing is written. PerfwrapError, whose ``hint`` says what to do, where there is no such run, file or rule.
    """
    given = [run] if isinstance(run, str | os.PathLike) else list(run)
    if not given:
        raise PerfwrapError("There is nothing to analyze.", "Give a run, or files of other profilers.")
    choice = choose_here(list(rules), list(ignore))
    first = Path(given[0])
    if len(given) == 1 and not (leads_somewhere(str(given[0])) and _is_import(first)):
        folder = run_names.find(str(given[0]))
        diagnosis, timeline = diagnose_run(RunFolder(folder), choice)
        return Analysis(run_names.called(folder), diagnosis, timeline)
    timeline, _ = read_files(files.expand(map(Path, given)), {})
    return Analysis(first.name, diagnose_timeline(timeline, choice), timeline)


def _is_import(path: Path) -> bool:
    """Return whether a path is a file or folder of other profilers, not a run folder of perfwrap's."""
    return path.is_file() or (path.is_dir() and not (path / MANIFEST).exists())


def compare(
    before: Analysis | RunPath | Sequence[Analysis | RunPath],
    after: Analysis | RunPath | Sequence[Analysis | RunPath],
    *,
    allow: Iterable[str] = (),
) -> Comparison:
    """Compare two runs, or several repeated runs of each side, with their noise.

    ``allow`` names differences that are intended, such as ``batch`` (its size) or ``torch`` (its version); see
    ``perfwrap compare --help``. PerfwrapError for an unknown one, and for a run that is named twice on one side.
    """
    return compare_sides(_side(before), _side(after), allowances(allow))


def _side(given: Analysis | RunPath | Sequence[Analysis | RunPath]) -> list[tuple[str, dict[str, Any]]]:
    """Return name and document of each run of one side."""
    several = [given] if isinstance(given, Analysis | str | os.PathLike) else list(given)
    found = [one if isinstance(one, Analysis) else analyze(one) for one in several]
    documents = [(one.name, one.to_dict()) for one in found]
    demand_different(documents, ", ".join(name for name, _ in documents))
    return documents
