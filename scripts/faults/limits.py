"""Faults of faults.py that come from the system: no room, no descriptors, no memory, a clock that is set."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals
from trial import Ended, Skipped, Trial, recorded_steps

MEBIBYTE = 1 << 20
ENOUGH_BYTES = 48 * MEBIBYTE
"""The address space that the recorder needs in addition to the program, besides 1/64 of the program's."""

SILENT = ("took no more", "recorded nothing", "could not start", "skipped", "are not recorded")
"""The words in the coverage of a process that could not write."""

CLOCK = """\
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long moved(void) {  /* an hour back and forth, each third of a second */
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (now.tv_sec * 3 + now.tv_nsec / 333333334) % 2 ? -3600 : 3600;
}
int clock_gettime(clockid_t which, struct timespec *now) {
    int answer = syscall(SYS_clock_gettime, which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += moved();
    return answer;
}
"""

QUOTA = """\
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static long used;
static int is_over(int file, long more) {  /* each process may write so much below the folder */
    char link[40], path[4096] = "";
    const char *folder = getenv("QUOTA_FOLDER"), *most = getenv("QUOTA_BYTES");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (!folder || !most || readlink(link, path, sizeof path - 1) < 0) return 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    if (used + more > atol(most)) return 1;
    used += more;
    return 0;
}
ssize_t write(int file, const void *from, size_t size) {
    if (!is_over(file, size)) return syscall(SYS_write, file, from, size);
    errno = EDQUOT;
    return -1;
}
int posix_fallocate(int file, off_t start, off_t size) {
    if (is_over(file, size)) return EDQUOT;
    return syscall(SYS_fallocate, file, 0, start, size) ? errno : 0;
}
int posix_fallocate64(int file, off_t start, off_t size) { return posix_fallocate(file, start, size); }
"""


def full_disk(trial: Trial) -> None:
    """The disk of the run folder is full, from the start or later."""
    with _disk(trial, f"size={trial.chance.choice([64, 512, 800, 1200, 1300, 1500, 2000, 4000])}k") as disk:
        ended = trial.start(out=disk / "run").end()
        _expect_as_bare(trial, ended, disk / "run")


def quota(trial: Trial) -> None:
    """The user's quota of the disk is used up (EDQUOT); a library that replaces libc's calls simulates it."""
    most = trial.chance.choice([0, 1, 4, 20, 64, 100, 300, 1000]) << 10
    trial.figures["quota"] = f"{most} bytes for each process"
    limits = {"QUOTA_FOLDER": str(trial.folder), "QUOTA_BYTES": str(most)}
    library = _built(trial, "quota", QUOTA)
    ended = trial.start(env={**os.environ, **limits, "LD_PRELOAD": str(library)}).end()
    _expect_as_bare(trial, ended, trial.folder)


def no_inodes(trial: Trial) -> None:
    """The disk of the run folder has no inode left, from the start or later."""
    with _disk(trial, f"nr_inodes={trial.chance.randint(3, 160)}") as disk:
        ended = trial.start(out=disk / "run").end()
        _expect_as_bare(trial, ended, disk / "run")


def read_only(trial: Trial) -> None:
    """The run folder becomes read-only while the program runs."""
    with _disk(trial, "size=64m") as disk:
        running = trial.start(out=disk / "run")
        running.wait_for_step(trial.chance.randint(1, trial.steps // 2))
        _mount("--bind", str(disk), str(disk))
        try:
            _mount("-o", "remount,ro,bind", str(disk))
            ended = running.end()
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
        _expect_as_bare(trial, ended, disk / "run")


def deleted(trial: Trial) -> None:
    """The run folder is deleted while the program runs."""
    running = trial.start(workers=2)
    running.wait_for_step(trial.chance.randint(1, trial.steps // 2))
    shutil.rmtree(trial.folder, ignore_errors=True)
    trial.expect_same(running.end(), trial.bare(2))


def file_size(trial: Trial) -> None:
    """The size of files is limited (ulimit -f)."""
    limit = trial.chance.randint(16 << 10, MEBIBYTE)

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    _expect_as_bare(trial, trial.start(preexec_fn=restrict).end(), trial.folder)


def few_descriptors(trial: Trial) -> None:
    """The number of descriptors is limited (ulimit -n) to little more than the program needs."""
    limit = trial.chance.randint(6, 40)
    _compare_under(trial, resource.RLIMIT_NOFILE, limit)


def little_memory(trial: Trial) -> None:
    """There is little more address space (ulimit -v) than the program needs."""
    needed = int(trial.bare().errors.split("peak ")[1].split()[0]) << 10
    limit = needed + needed // 64 + ENOUGH_BYTES + trial.chance.randint(0, 300 * MEBIBYTE)
    trial.figures["address space without perfwrap"] = f"{needed // MEBIBYTE} MiB"
    _compare_under(trial, resource.RLIMIT_AS, limit)


def clock_is_set(trial: Trial) -> None:
    """The clock is repeatedly set by an hour; a library that replaces libc's gettime simulates it."""
    library = _built(trial, "clock", CLOCK)
    ended = trial.start(env={**os.environ, "LD_PRELOAD": str(library)}).end()
    trial.expect_same(ended, trial.bare())
    trial.expect_readable()
    trial.expect_steps(ended.steps)


def _built(trial: Trial, name: str, source: str) -> Path:
    """Return a library for LD_PRELOAD; Skipped if there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skipped("there is no C compiler")
    text, library = trial.place / f"{name}.c", trial.place / f"{name}.so"
    text.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, text], check=True)
    return library


def _expect_as_bare(trial: Trial, ended: Ended, folder: Path) -> None:
    """Expect that the program is unharmed, and that the run contains what it reports."""
    trial.expect_same(ended, trial.bare())
    recorded = "this run is not recorded" not in ended.errors
    trial.figures["recorded"] = f"{recorded_steps(folder) if recorded else 0} of {ended.steps} steps"
    if not recorded:
        return
    trial.expect_readable(folder)
    if recorded_steps(folder) < ended.steps:
        notes = _what_is_said(folder) + ended.errors
        trial.expect(any(word in notes for word in SILENT), f"nothing says that records are missing: {notes}")


def _what_is_said(folder: Path) -> str:
    timeline = run_journals.read(RunFolder(folder))
    return " ".join(filter(None, [*timeline.coverage["note"].to_list(), *timeline.run["warnings"]]))


def _compare_under(trial: Trial, what: int, limit: int) -> None:
    """Run the program bare and wrapped under a limit; if the bare one succeeds, the wrapped one must."""

    def restrict() -> None:
        resource.setrlimit(what, (limit, limit))

    bare = trial.bare(key=(what, limit), preexec_fn=restrict)
    running = trial.start(preexec_fn=restrict)
    ended = running.end()
    if bare.code == 0:
        trial.expect_same(ended, bare)
    if (trial.folder / "run.json").exists():
        trial.expect_readable()


@contextlib.contextmanager
def _disk(trial: Trial, options: str) -> Iterator[Path]:
    """Mount a small file system for the block."""
    disk = trial.place / "disk"
    disk.mkdir()
    trial.figures["disk"] = options
    _mount("-t", "tmpfs", "-o", options, "none", str(disk))
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def _mount(*words: str) -> None:
    if subprocess.run(["mount", *words], capture_output=True).returncode:
        raise Skipped("this machine does not permit mounting a small file system")
