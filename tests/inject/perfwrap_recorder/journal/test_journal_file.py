"""A journal's file does not disturb the program, on a full disk and when the file is deleted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def test_no_descriptor_stays_open_and_closing_all_harms_nothing(run) -> None:
    done = run(
        """
before = os.listdir("/proc/self/fd")
open_journal()
assert os.listdir("/proc/self/fd") == before
os.closerange(3, 200)
mine = os.open(sys.argv[1] + "/mine", os.O_RDWR | os.O_CREAT)
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
os.write(mine, b"still mine")
os.close(mine)
"""
    )
    assert len(done.journal.of("SYNC")) == 40_000
    assert (done.run_dir / "mine").read_bytes() == b"still mine"


def test_a_deleted_journal_ends_the_recording_and_nothing_else(run) -> None:
    done = run(
        """
open_journal()
import shutil
shutil.rmtree(sys.argv[1] + "/journal")
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
journal.fact("still", "alive")
assert journal.text("unheard of") == 0
print("fine")
"""
    )
    assert done.stdout == "fine\n"
    assert not done.run_dir.joinpath("journal").exists()


def test_another_file_in_the_journals_place_is_left_alone(run) -> None:
    done = run(
        """
open_journal()
path = journal.open_file._path
os.unlink(path)
with open(path, "wb") as file: file.write(b"somebody else's")
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
with open(path, "rb") as file: print(file.read().decode())
os.unlink(path)
"""
    )
    assert done.stdout == "somebody else's\n"


def test_a_full_disk_ends_the_recording_and_nothing_else(run) -> None:
    # A limit on file sizes refuses to allocate just as a full disk does, and needs no privileges.
    done = run(
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
open_journal()
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
print("fine")
"""
    )
    assert done.stdout == "fine\n"
    kept = len(done.journal.of("SYNC"))
    assert 1_000 < kept < 200_000 // 32
    (why,) = (found for found in done.journal.of("COVERAGE") if found.name == "journal")
    assert done.journal.texts[why.value] == "nothing was written any more: the disk took no more"
    (end,) = done.journal.of("END")
    assert why.start == done.journal.header[3] and why.start < why.start + why.duration <= end.start
    assert done.journal.path.stat().st_size <= 200_000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a file system")
def test_a_really_full_disk_does_not_kill(run, tmp_path: Path) -> None:

    (tmp_path / "journal").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(tmp_path / "journal")]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        done = run(
            """
open_journal()
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
print("fine")
"""
        )
        assert done.stdout == "fine\n"
        assert len(done.journal.of("SYNC")) > 1_000
    finally:
        subprocess.run(["umount", str(tmp_path / "journal")], check=True)


def test_of_a_limited_address_space_a_journal_takes_a_small_part(run) -> None:
    done = run(
        """
import resource
def taken():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
before = taken()
open_journal()
print(taken() - before < 80 << 20)
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
lifecycle.reduce_budget(2)
for number in range(40_000):
    journal.span(number, 1, number, name, journal_format.SYNC)
""",
        budget=256 << 20,
    )
    assert done.stdout == "True\n"
    assert done.journal.totals() == {("SYNC", "x"): (80_000, 80_000)}


def test_a_journal_that_cannot_be_made_is_an_os_error_and_then_silence(run) -> None:
    done = run(
        """
try:
    Settings.run_dir = "/nonexistent/folder"
    lifecycle.open_current(Settings)
except OSError:
    print("refused")
journal.span(1, 1, 1, journal.text("x"), journal_format.SYNC)
journal.fact("x", "y")
"""
    )
    assert done.stdout == "refused\n"


def test_a_process_that_execs_leaves_two_files(run) -> None:
    done = run(
        """
if len(sys.argv) == 3:
    open_journal()
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
open_journal()
"""
    )
    names = sorted(found.path.name for found in done.journals)
    assert len(names) == 2
    assert names[0].endswith("-0.pwj") and names[1] == names[0][:-5] + "1.pwj"


def test_a_file_that_another_thread_has_already_grown_to_its_limit_is_no_error(run) -> None:
    done = run(
        """
from perfwrap_recorder.journal.journal_file import JournalFile
file = JournalFile(sys.argv[1] + "/journal", "host", 128 << 10)
file.grow(100 << 10)
assert file.allocated_bytes == 128 << 10
file.grow(100 << 10)
try:
    file.grow((128 << 10) + 1)
except OSError as error:
    print(error)
""",
        check=False,
    )
    assert done.stdout == "the budget is used up\n"
