"""How many batches the workers of a DataLoader have ready when one is requested, and whether they come in order.

Read from attributes of the iterator that torch (checked with 2.13) and torchdata's loader share; if they are
missing, nothing is written.
"""

from __future__ import annotations

from perfwrap_recorder import journal_format, static_access
from perfwrap_recorder.journal import journal

QUEUES = ("multiprocessing.queues", "queue", "_queue")
"""Modules whose queues return their length without a lock that could be held for long."""

OVERTAKEN = 0.5


def look(iterator):
    """Return how many batches are ready, and whether the next one in order is known to be; None if unknowable."""
    if journal.summing:
        return None
    own = static_access.own(iterator)
    tasks, outstanding, queue = map(own.get, ("_task_info", "_tasks_outstanding", "_data_queue"))
    if type(tasks) is not dict or type(outstanding) is not int:
        return None
    if static_access.module_of(type(queue)) not in QUEUES:
        return None
    try:
        arrived = queue.qsize()
    except NotImplementedError:  # macOS cannot count what is in a pipe
        return None
    return _early(tasks, outstanding) + arrived, len(tasks.get(own.get("_rcvd_idx"), ())) > 1


def write(iterator, start, ready, name):
    """Write how many were ready when the current batch was requested."""
    if journal.summing:
        return
    many, next_was_ready = ready
    own = static_access.own(iterator)
    overtaken = not next_was_ready and _early(own["_task_info"], own["_tasks_outstanding"])
    value = many + OVERTAKEN if overtaken else float(many)
    bits = journal_format.FLOAT_BITS.unpack(journal_format.FLOAT.pack(value))[0]
    journal.record(start, 0, bits, journal.text(name), journal_format.QUEUE)


def _early(tasks, outstanding):
    """Return how many batches were received out of order; they are kept with their tasks."""
    if len(tasks) == outstanding:
        return 0
    # Tasks of a worker whose dataset has ended stay outstanding, so the received ones are counted.
    return sum(len(task) > 1 for task in tasks.values())
