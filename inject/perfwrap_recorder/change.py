"""What was asked of one change, and how it is said what became of it; see ``perfwrap_recorder.changes``."""

from __future__ import annotations

import atexit

from perfwrap_recorder import guard, journal, redaction
from perfwrap_recorder.source_lines import find_place

UNUSED, APPLIED, REFUSED = "unused", "applied", "refused"

MAXIMUM_SITES = 20
LONGEST_SITES = 3900
"""Bytes of all sites together: a text of the journal's has 4080."""

FIELD, RECORD = "\x1f", "\x1e"

all_changes = []


class Change:
    """One change of this process: ``value`` is the text behind its name, "" where there is none."""

    def __init__(self, name, value=""):
        self.name = name
        self.value = value
        self.torch = None
        self.status = ""
        self.checks = []
        """Functions() that look, at the end, whether what was changed has lasted."""
        self.count = 0
        self._sites = []
        self._said_count = 0
        self._said_reason = ""
        all_changes.append(self)
        self._say_status(UNUSED)

    @property
    def key(self):
        """Return the name under which guard and journal know it."""
        return "change/" + self.name

    def apply(self, frame, before, after, is_skipped=None):
        """Note that something was changed on behalf of the line that ``frame`` or one of its callers runs.

        ``frame`` is None where there is no such line.
        """
        self.count += 1
        if self.status != APPLIED:
            self._say_status(APPLIED)
            if self._said_reason:
                self.explain("")
        if len(self._sites) < MAXIMUM_SITES:
            place = find_place(frame, is_skipped).split(FIELD)[:2] if frame else ["", ""]
            self._add_site(FIELD.join(((place + ["", ""])[:2]) + [str(before), str(after)]))
        if self.count & (self.count - 1) == 0:
            self.say_count()

    def refuse(self, reason):
        """Say why nothing is changed; what was changed elsewhere stays said."""
        if self.status != APPLIED:
            self._say_status(REFUSED)
            self.explain(reason)

    def take_back(self, reason):
        """Say that what was changed did not last, or could not be used."""
        self.status = ""
        self.refuse(reason)

    def needs_gpu(self, torch):
        """Say whether this torch can use a GPU, else refuse; a program that does not use it is told at the end."""
        if not any(getattr(torch.version, build, None) for build in ("cuda", "hip")):
            self.refuse("it is for GPUs, and this PyTorch is built for the CPU alone")
            return False
        self.checks.append(lambda: self._refuse_without_gpu(torch))
        return True

    def _refuse_without_gpu(self, torch):
        if self.status == UNUSED and not torch.cuda.is_initialized():
            self.refuse("it is for GPUs, and the program uses none")

    def explain(self, reason):
        """Say what to bear in mind, in one sentence."""
        if reason != self._said_reason:
            self._said_reason = reason
            journal.fact(self.key + "/reason", redaction.masked(reason))

    def say_count(self):
        """Say how often something was changed, where that is new."""
        if self.count != self._said_count:
            self._said_count = self.count
            journal.fact(self.key + "/count", self.count)

    def forget(self):
        """Begin anew, in the child of a fork: what was said of the parent is not said of it."""
        self._sites, self.count = [], 0
        self._said_count, self._said_reason = 0, ""
        self.status = UNUSED if self.status == APPLIED else self.status

    def _say_status(self, status):
        if status != self.status:
            self.status = status
            journal.fact(self.key + "/status", status)

    def _add_site(self, site):
        if site not in self._sites and len(RECORD.join([*self._sites, site]).encode()) <= LONGEST_SITES:
            self._sites.append(site)
            journal.fact(self.key + "/sites", RECORD.join(self._sites))


def settle():
    """Say what became of each change in the end."""
    for change in all_changes:
        for check in change.checks:
            guard.run(change.key, check)
        change.say_count()


def _begin_in_child():
    """Say anew, in the child of a fork, what becomes of each change there."""
    for change in all_changes:
        change.forget()


atexit.register(settle)
journal.after_fork.add(_begin_in_child)
