"""File systems of what a process has open; its files stay unnamed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.host.mounts import Mount, Mounts, describe

MOUNTS = """\
21 1 0:21 / / rw,relatime - overlay overlay rw,lowerdir=/a
33 21 0:40 / /mnt/data\\040set ro,relatime shared:5 - nfs4 server:/export ro,vers=4.2
34 21 0:41 / /dev/shm rw - tmpfs tmpfs rw
"""
READ_ONLY, READ_WRITE = "0100000", "0100002"


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Any]:
    """Make up process 7 with these open files: number, path, flags, mount."""

    def make(*files: tuple[int, str, str, int]) -> Path:
        folder = tmp_path / "7"
        for name in ("fd", "fdinfo", "ns"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "ns/mnt").symlink_to("mnt:[4026531840]")
        (folder / "mountinfo").write_text(MOUNTS)
        for number, path, flags, mount in files:
            (folder / "fd" / str(number)).symlink_to(path)
            (folder / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t{mount}\n")
        return tmp_path

    return make


def test_what_is_read_and_written_is_reported_by_mount(process: Callable[..., Path]) -> None:
    proc = process(
        (3, "/mnt/data set/train/secret.tar", READ_ONLY, 33),
        (4, "/work/last.pt", READ_WRITE, 21),
        (5, "/mnt/data set/train/other.tar (deleted)", READ_ONLY, 33),
    )
    found = Mounts(proc).of_open_files(7, "/runs/this")
    assert found == {
        ("reads", Mount("/mnt/data set", "nfs4")),
        ("writes", Mount("/", "overlay")),
    }


def test_what_is_no_file_of_data_is_left_out(process: Callable[..., Path]) -> None:
    proc = process(
        (0, "/work/in.txt", READ_ONLY, 21),
        (3, "/dev/null", READ_ONLY, 21),
        (4, "socket:[123]", READ_WRITE, 21),
        (5, "/runs/this/journal/x.pwj", READ_WRITE, 21),
        (6, "/usr/lib/python3/site.py", READ_ONLY, 21),
        (7, "/mnt/data set", "0200000", 33),
        (8, "/somewhere/gone", READ_ONLY, 99),
    )
    assert Mounts(proc).of_open_files(7, "/runs/this") == set()


def test_a_real_process_shows_the_mount_of_its_file(
    run_python: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    file = tmp_path / "samples.bin"
    file.write_bytes(b"x")
    process = run_python(f"import sys\nfile = open({str(file)!r})\nprint(1, flush=True)\nsys.stdin.read()")
    assert process.stdout is not None
    process.stdout.readline()
    ((use, mount),) = Mounts().of_open_files(process.pid, "/runs")
    assert use == "reads"
    assert file.is_relative_to(mount.point)
    assert Path(mount.point).is_mount()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nfs4", "nfs4 (network)"),
        ("fuse.s3fs", "fuse.s3fs (network)"),
        ("fuse.something", "fuse.something (a program's)"),
        ("ext4", "ext4 (local)"),
        ("tmpfs", "tmpfs (memory)"),
        ("9p", "9p (shared by the host)"),
    ],
)
def test_a_type_is_reported_with_what_it_means(kind: str, text: str) -> None:
    assert describe(Mount("/", kind)) == text
