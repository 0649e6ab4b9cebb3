"""Runs whose end nobody wrote down, because the launcher was killed: whether they are over all the same."""

from __future__ import annotations

import os
from typing import Any

from perfwrap.launch import proc, registered
from perfwrap.run_folder import MANIFEST, RunFolder, host_name

JOURNALS = "*.pwj"


def is_abandoned(folder: RunFolder, manifest: dict[str, Any]) -> bool:
    """Say whether none of the run's processes lives any more; False where that cannot be seen from here.

    Seen are those of this machine, and of this container, for a pid means another process in another one.
    """
    launcher, host = manifest.get("launcher"), (manifest.get("host") or {}).get("name")
    if not isinstance(launcher, dict) or host != host_name() or proc.status(os.getpid()) is None:
        return False
    if not launcher.get("namespace") or launcher["namespace"] != proc.namespace():
        return False
    journals = [path.stem.rsplit("-", 3) for path in folder.journal.glob(JOURNALS)]
    hosts = {words[0] for words in journals} | {path.stem for path in folder.starts.glob("*.log")}
    if hosts - {host}:
        return False
    known = {(words[1], words[2]) for words in journals if len(words) == 4}
    numbers = {(int(pid), int(ticks)) for pid, ticks in known if pid.isdigit() and ticks.isdigit()}
    numbers |= registered.recorded(folder) | {(launcher["pid"], launcher["start_ticks"])}
    return not any(proc.runs(pid, start_ticks) for pid, start_ticks in numbers)


def imported_ns(folder: RunFolder) -> int:
    """Return when files were imported into such a run, on the wall clock."""
    return (folder.path / MANIFEST).lstat().st_mtime_ns


def last_sign_ns(folder: RunFolder) -> int:
    """Return when something was written into such a run last, on the wall clock; 0 where that is not known."""
    files = [folder.path / MANIFEST, *folder.journal.glob(JOURNALS), *folder.starts.glob("*.log")]
    return max((file.lstat().st_mtime_ns for file in files if file.exists()), default=0)
