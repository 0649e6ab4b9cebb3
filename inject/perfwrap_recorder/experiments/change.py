"""One change that an experiment asks for, and the facts that report its result; see ``changes/__init__.py``."""

from __future__ import annotations

import atexit

from perfwrap_recorder import guard, redaction
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program.source_lines import find_place

UNUSED, APPLIED, REFUSED = "unused", "applied", "refused"

MAX_SITES = 20
MAX_SITES_BYTES = 3900
"""Bytes of all sites together: a text of the journal has at most 4080."""

FIELD, RECORD = "\x1f", "\x1e"

all_changes = []


class Change:
    """One change in this process: ``value`` is the text after its name, "" if there is none."""

    def __init__(self, name, value=""):
        self.name = name
        self.value = value
        self.torch = None
        self.status = ""
        self.checks = []
        """Functions() that check, at the end, whether the change is still in effect."""
        self.count = 0
        self._sites = []
        self._reported_count = 0
        self._reported_reason = ""
        all_changes.append(self)
        self._report_status(UNUSED)

    @property
    def key(self):
        """Return its name in guard and journal."""
        return "change/" + self.name

    def apply(self, frame, before, after, is_skipped=None):
        """Report that something was changed for the line that ``frame`` or one of its callers runs.

        ``frame`` is None if there is no such line.
        """
        self.count += 1
        if self.status != APPLIED:
            self._report_status(APPLIED)
            if self._reported_reason:
                self.explain("")
        if len(self._sites) < MAX_SITES:
            place = find_place(frame, is_skipped).split(FIELD)[:2] if frame else ["", ""]
            self._add_site(FIELD.join(((place + ["", ""])[:2]) + [str(before), str(after)]))
        if self.count & (self.count - 1) == 0:
            self.report_count()

    def refuse(self, reason):
        """Report why nothing is changed, unless something was changed elsewhere."""
        if self.status != APPLIED:
            self._report_status(REFUSED)
            self.explain(reason)

    def take_back(self, reason):
        """Report that the change did not last or could not be used."""
        self.status = ""
        self.refuse(reason)

    def needs_gpu(self, torch):
        """Return whether this torch can use a GPU, else refuse; refuse at the end if the program used none."""
        if not any(getattr(torch.version, build, None) for build in ("cuda", "hip")):
            self.refuse("it is for GPUs of NVIDIA or AMD, and this PyTorch is built for neither")
            return False
        self.checks.append(lambda: self._refuse_without_gpu(torch))
        return True

    def _refuse_without_gpu(self, torch):
        if self.status == UNUSED and not torch.cuda.is_initialized():
            self.refuse("it is for GPUs, and the program uses none")

    def explain(self, reason):
        """Report what to consider, in one sentence."""
        if reason != self._reported_reason:
            self._reported_reason = reason
            journal.fact(self.key + "/reason", redaction.masked(reason))

    def report_count(self):
        """Report how often something was changed, if that is new."""
        if self.count != self._reported_count:
            self._reported_count = self.count
            journal.fact(self.key + "/count", self.count)

    def forget(self):
        """Start again in the child of a fork: the parent's reports do not count for it."""
        self._sites, self.count = [], 0
        self._reported_count, self._reported_reason = 0, ""
        self.status = UNUSED if self.status == APPLIED else self.status

    def _report_status(self, status):
        if status != self.status:
            self.status = status
            journal.fact(self.key + "/status", status)

    def _add_site(self, site):
        if site not in self._sites and len(RECORD.join([*self._sites, site]).encode()) <= MAX_SITES_BYTES:
            self._sites.append(site)
            journal.fact(self.key + "/sites", RECORD.join(self._sites))


def report_results():
    """Report the final result of each change."""
    for change in all_changes:
        for check in change.checks:
            guard.run(change.key, check)
        change.report_count()


def _begin_in_child():
    """Report each change again, in the child of a fork."""
    for change in all_changes:
        change.forget()


atexit.register(report_results)
journal.after_fork.add(_begin_in_child)
