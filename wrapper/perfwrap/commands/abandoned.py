"""Runs without a recorded end, because the launcher was killed: whether they are over."""

from __future__ import annotations

import os
from typing import Any

from perfwrap.launch import proc, registered
from perfwrap.run_folder import MANIFEST, RunFolder, host_name

JOURNALS = "*.pwj"


def is_abandoned(folder: RunFolder, manifest: dict[str, Any]) -> bool:
    """Return whether no process of the run is alive; False if that cannot be seen from here.

    Only processes of this machine and of this container can be seen: in another one, a pid is another process.
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
    numbers = {(int(pid), int(ticks)) for pid, ticks in known if pid.isdecimal() and ticks.isdecimal()}
    numbers |= registered.recorded(folder) | {(launcher["pid"], launcher["start_ticks"])}
    return not any(proc.runs(pid, start_ticks) for pid, start_ticks in numbers)


def imported_ns(folder: RunFolder) -> int:
    """Return when files were imported into such a run, on the wall clock."""
    return (folder.path / MANIFEST).lstat().st_mtime_ns


def last_sign_ns(folder: RunFolder) -> int:
    """Return the time of the last write into such a run, on the wall clock; 0 if that is not known."""
    files = [folder.path / MANIFEST, *folder.journal.glob(JOURNALS), *folder.starts.glob("*.log")]
    return max((file.lstat().st_mtime_ns for file in files if file.exists()), default=0)
