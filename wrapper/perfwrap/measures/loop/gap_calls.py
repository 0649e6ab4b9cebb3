"""The calls in the source lines of the program's own Python code between the phases."""

from __future__ import annotations

from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.loop.source_calls import file_calls, tensor_calls
from perfwrap.measures.trainers import Trainer


def find_gaps_with_files(
    evidence: Evidence, trainer: Trainer, where: Line | None
) -> tuple[tuple[PythonGap, ...], tuple[str, ...]]:
    """Return the Python sections right after a line whose source handles files, and these calls.

    Both are empty if no code after it in the same iteration moves, removes or syncs files.
    """
    found = evidence.get(find_python_gaps, trainer)
    gaps = tuple(gap for gap in found if where is not None and gap.after == where)
    calls = file_calls(evidence.timeline.run, where.file, where.line) if where is not None and gaps else ()
    return (gaps, calls) if calls else ((), ())


def find_tensor_calls(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> tuple[str, ...]:
    """Return the calls in a Python section that compute on CPU tensors, if known."""
    if gap.after is None or gap.until_line is None or trains_on_gpu(evidence, trainer):
        return ()
    return tensor_calls(evidence.timeline.run, gap.after.file, gap.after.line, gap.until_line)
