"""Where the program calls a function or class whose arguments are to change."""

from __future__ import annotations

from pathlib import Path

from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import is_program
from perfwrap.measures.loop.source_calls import calls_of


def find_only_call(evidence: Evidence, name: str, near: str | None = None) -> Line | None:
    """Return the only line of the program's known files that calls something by this name.

    The file ``near`` counts alone if it has such lines. None if there are none, or several.
    """
    run = evidence.timeline.run
    known = evidence.timeline.spans["file"].drop_nulls().unique().sort().to_list()
    scripts = [str(word) for word in run.get("command") or () if str(word).endswith(".py")][:1]
    here = {Path(str(run.get("cwd") or "."), file): file for file in (*scripts, *known) if is_program(file)}
    others = [file for file in here.values() if file != near]
    for files in ([near] if near else [], others):
        found = [Line(file, line) for file in files for line in calls_of(run, file, name)]
        if found:
            return found[0] if len(found) == 1 else None
    return None
