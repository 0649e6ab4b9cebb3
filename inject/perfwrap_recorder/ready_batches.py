"""How many batches the workers of a DataLoader have ready when one is asked for, and whether they come in order.

Read from attributes of the iterator's own that torch (2.13 was seen) and torchdata's loader share; where
they are missing, nothing is said.
"""

from __future__ import annotations

from perfwrap_recorder import journal, journal_format, plainly

QUEUES = ("multiprocessing.queues", "queue", "_queue")
"""Modules whose queues tell their length without a lock that somebody could hold for long."""

OVERTAKEN = 0.5


def look(iterator):
    """Return how many batches are ready, and whether the next one in order is known to be; None if unknowable."""
    if journal.summing:
        return None
    own = plainly.own(iterator)
    tasks, outstanding, queue = map(own.get, ("_task_info", "_tasks_outstanding", "_data_queue"))
    if type(tasks) is not dict or type(outstanding) is not int:
        return None
    if plainly.module_of(type(queue)) not in QUEUES:
        return None
    try:
        arrived = queue.qsize()
    except NotImplementedError:  # macOS cannot count what is in a pipe
        return None
    return _early(tasks, outstanding) + arrived, len(tasks.get(own.get("_rcvd_idx"), ())) > 1


def tell(iterator, start, ready, name):
    """Write how many there were when the batch was asked for that has come now."""
    if journal.summing:
        return
    many, next_was_ready = ready
    own = plainly.own(iterator)
    overtaken = not next_was_ready and _early(own["_task_info"], own["_tasks_outstanding"])
    value = many + OVERTAKEN if overtaken else float(many)
    bits = journal_format.FLOAT_BITS.unpack(journal_format.FLOAT.pack(value))[0]
    journal.record(start, 0, bits, journal.text(name), journal_format.QUEUE)


def _early(tasks, outstanding):
    """Return how many batches have been received before their turn; they are kept with their tasks."""
    if len(tasks) == outstanding:
        return 0
    # Of a worker whose dataset has ended, tasks stay outstanding that nobody works on: so these are counted.
    return sum(len(task) > 1 for task in tasks.values())
