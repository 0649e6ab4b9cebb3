"""Where the program creates an optimizer, which is where its options are."""

from __future__ import annotations

from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import is_program
from perfwrap.measures.loop.optimizers import OptimizerUse
from perfwrap.measures.loop.source_calls import calls_of
from perfwrap.measures.trainers import Trainer


def find_creation(evidence: Evidence, trainer: Trainer, use: OptimizerUse) -> Line | None:
    """Return the only line of the program's known files that calls the class of an optimizer.

    The file of its steps counts alone if it has such lines. None if there are none, or several.
    """
    name = use.kind.rpartition(".")[2]
    if not name or use.where is None:
        return None
    run = evidence.timeline.run
    known = evidence.timeline.spans["file"].drop_nulls().unique().sort().to_list()
    others = [file for file in known if file != use.where.file and is_program(file)]
    for files in ([use.where.file], others):
        found = [Line(file, line) for file in files for line in calls_of(run, file, name)]
        if found:
            return found[0] if len(found) == 1 else None
    return None
