"""The runs to compare: each is given by its diagnosis, recomputed or read from a diagnosis.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfwrap.analysis.run_names import called, find
from perfwrap.commands.run_report import diagnosed
from perfwrap.comparison.obstacles import demand_different
from perfwrap.errors import PerfwrapError
from perfwrap.private_files import leads_somewhere, read_plain
from perfwrap.reports import json as json_report
from perfwrap.run_folder import MAX_DOCUMENT_BYTES
from perfwrap.shapes import amount, fields, listed, named, number, positive, text

STRETCHES = fields(needed=True, steps=positive, mean_ns=listed(positive))
MACHINE = fields(
    cores_online=amount, cores_busy=amount, own_cores=amount, stolen_cores=amount, switches_per_s=amount
)
DIAGNOSIS = fields(
    needed=True,
    verdict=fields(needed=True, id=text),
    steps=lambda value: (
        fields(needed=True, steady=number, anchor=text, stretches=STRETCHES)(value)
        and fields(median_ns=amount, p99_ns=amount, samples_per_s=amount)(value)
    ),
    conditions=named(text),
    findings=listed(fields(needed=True, rule=text, share=amount)),
    outcomes=named(fields(state=text)),
    account=named(amount),
    run=fields(needed=True, command=listed(text)),
)
"""The parts of a diagnosis.json that a comparison reads; docs/diagnosis.schema.json describes all of it."""


def document(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the diagnosis of a run, recomputed, or of a diagnosis.json as it is."""
    path = Path(name)
    if leads_somewhere(name) and path.is_file():
        return path.stem if path.stem != "diagnosis" else path.absolute().parent.name, _read(path)
    folder = find(name)
    return called(folder), json_report.document(diagnosed(folder))


def side(names: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the diagnosis of each run of a side; several names are comma-separated."""
    try:
        return [document(names)]
    except PerfwrapError:
        if "," not in names or leads_somewhere(names):
            raise
    words = [word.strip() for word in names.split(",")]
    if not all(words):
        raise PerfwrapError(
            f"A name is missing between two commas: {names!r}.", "For example: perfwrap compare a1,a2 b1,b2"
        )
    if len(set(words)) < len(words):
        raise PerfwrapError(f"{names!r} names the same run twice.", "Name each run once.")
    found = [document(word) for word in words]
    demand_different(found, names)
    return found


def _read(path: Path) -> dict[str, Any]:
    """Return the diagnosis in a file; PerfwrapError for any other file."""
    hint = "Give a run folder, or the diagnosis.json of one."
    try:
        found = json.loads(read_plain(path, MAX_DOCUMENT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise PerfwrapError(f"Cannot read {path} as JSON: {error}", hint) from error
    if not isinstance(found, dict) or not isinstance(found.get("format"), int) or "verdict" not in found:
        raise PerfwrapError(f"{path} is not a diagnosis.json.", hint)
    if found["format"] > json_report.FORMAT:
        number = found["format"]
        raise PerfwrapError(
            f"{path} was written by a newer perfwrap (format {number}; this version reads up to {json_report.FORMAT}).",
            "Upgrade perfwrap to read it.",
        )
    steps = found.get("steps")
    if isinstance(steps, dict) and ("stretches" not in steps or "conditions" not in found):
        raise PerfwrapError(
            f"{path} was written by an older perfwrap and contains no step times.",
            "Rewrite it from the run folder: perfwrap report RUN",
        )
    if not DIAGNOSIS(found) or not fields(machine=MACHINE)(found):
        raise PerfwrapError(f"{path} is damaged: parts of it are not those of a diagnosis.", hint)
    return found
