"""The file systems that a process uses, from its open files; never the names of the files.

The mount of a file is in /proc/PID/fdinfo and the mounts are in /proc/PID/mountinfo (proc(5)). Only links and lists of
/proc are read: access to a file itself could hang if a network file system does not respond.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from perfwrap.control_groups import text, unescaped

NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "panfs", "pvfs2",
    "orangefs", "wekafs", "glusterfs", "ocfs2", "gfs2", "daos", "hdfs", "s3fs", "gcsfuse", "goofys", "sshfs", "juicefs",
    "rclone", "blobfuse", "blobfuse2", "mountpoint-s3", "cephfs", "moosefs", "mfs", "alluxio", "seaweedfs",
)  # fmt: skip
"""Types of network file systems, also after ``fuse.``."""
MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
SHARED_BY_HOST = ("9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs")
"""File systems that a virtual machine or sandbox gets from its host; the storage behind them is unknown."""
NOT_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
PROGRAM = (".py", ".pyc", ".so", ".pyd", ".zip", ".egg")
"""Files that Python itself opens."""
MAX_FILES = 64
WRITING, DIRECTORY = os.O_WRONLY | os.O_RDWR, os.O_DIRECTORY


class Mount(NamedTuple):
    """One line of mountinfo."""

    point: str
    type: str


class Mounts:
    """The mounts that processes see; read again if an unknown one appears."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[tuple[str, str], Mount] = {}

    def of_open_files(self, pid: int, leave_out: str) -> set[tuple[str, Mount]]:
        """Return ``reads`` or ``writes`` with the mount, for each file of data that the process has open.

        OSError if it has ended or is not readable. Files below ``leave_out`` are perfwrap's own.
        """
        folder = self._proc / str(pid)
        space = str((folder / "ns/mnt").readlink())
        numbers = sorted((int(link.name) for link in (folder / "fd").iterdir()), reverse=True)
        found = set()
        for number in numbers[:MAX_FILES]:
            if number > 2 and _is_data(_link(folder / "fd" / str(number)), leave_out):
                flags, mount = self._open_file(folder, space, number)
                if mount is not None and not flags & DIRECTORY:
                    found.add(("writes" if flags & WRITING else "reads", mount))
        return found

    def _open_file(self, folder: Path, space: str, number: int) -> tuple[int, Mount | None]:
        lines = (line.split() for line in text(folder / "fdinfo" / str(number)).splitlines())
        words = {line[0]: line[1] for line in lines if len(line) > 1}
        mount = words.get("mnt_id:", "")
        if mount and (space, mount) not in self._known:
            self._known.update({(space, name): found for name, found in _mounts(folder)})
        return int(words.get("flags:", "0"), 8), self._known.get((space, mount))


def describe(mount: Mount) -> str:
    """Return e.g. ``nfs4 (network)``."""
    name = mount.type.removeprefix("fuse.").removeprefix("fuseblk.")
    if name in NETWORK:
        kind = "network"
    elif mount.type in MEMORY:
        kind = "memory"
    elif mount.type in SHARED_BY_HOST:
        kind = "shared by the host"
    elif mount.type.startswith("fuse"):
        kind = "a program's"
    else:
        kind = "local"
    return f"{mount.type} ({kind})"


def _is_data(path: str, leave_out: str) -> bool:
    """Return whether an open file may belong to the data set, a checkpoint or a log."""
    if not path.startswith("/") or path.startswith((*NOT_FILES, leave_out + "/")):
        return False
    return PurePath(path.removesuffix(" (deleted)")).suffix not in PROGRAM


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""  # Closed meanwhile.


def _mounts(folder: Path) -> Iterator[tuple[str, Mount]]:
    for line in text(folder / "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        words = left.split()
        yield words[0], Mount(unescaped(words[4]), right.split()[0])
