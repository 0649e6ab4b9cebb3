"""The file of a journal: created once, grown by allocation, mapped without an open descriptor.

No descriptor stays open: a program that closes descriptors which it did not open (every daemon does) could reuse the
number for its own file, and Python's ``mmap`` closes its copy of the number later. So ``mmap`` of the C library is
used, once and for the whole budget: pages beyond the end of the file are not touched before the file reaches them.
The mapping is never removed; its older pages are returned to the system.
"""

from __future__ import annotations

import ctypes
import os
import resource

FIRST_BYTES = 16 << 10
"""Initial size: a program may have thousands of short-lived workers that write little."""

CHUNK_BYTES = 1 << 20
"""A file grows by at most this."""

ADDRESS_SHARE = 64
"""A journal may use 1/ADDRESS_SHARE of a limited address space (ulimit -v)."""

PROT_READ_WRITE, MAP_SHARED, MADV_DONTNEED = 3, 1, 4
MAP_FAILED = ctypes.c_void_p(-1).value


def affordable(budget_bytes):
    """Return the maximum size of a journal in this process: its file is mapped for the whole budget."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return budget_bytes if limit == resource.RLIM_INFINITY else min(budget_bytes, limit // ADDRESS_SHARE)


class JournalFile:
    """A file that grows up to a limit; ``memory`` is all of it, ``allocated_bytes`` of it may be touched."""

    def __init__(self, directory, host, limit_bytes):
        """Make the file; OSError if that fails."""
        self.allocated_bytes = 0
        self._returned_bytes = 0
        self._limit_bytes = limit_bytes
        self._path, descriptor = _create(directory, host)
        try:
            status = os.fstat(descriptor)
            self._identity = status.st_dev, status.st_ino
            self._allocate(descriptor, 0, min(FIRST_BYTES, limit_bytes))
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._address = _map(self._libc, descriptor, limit_bytes)
        finally:
            os.close(descriptor)
        self.memory = (ctypes.c_char * limit_bytes).from_address(self._address)

    def grow(self, needed_bytes):
        """Grow the file to at least this size; OSError if that is over its limit, or the disk is full, or it is gone.

        Safe to call from several threads at once: allocating again changes nothing.
        """
        if needed_bytes > self._limit_bytes:
            raise OSError("the budget is used up")
        size = self.allocated_bytes
        if size >= needed_bytes:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self._identity:
                raise OSError("another file has the journal's name")
            end = size
            while end < needed_bytes:
                end = min(end + min(end, CHUNK_BYTES), self._limit_bytes)
            self._allocate(descriptor, size, end)
        finally:
            os.close(descriptor)
        self._give_pages_back(size - CHUNK_BYTES)

    def _allocate(self, descriptor, start, end):
        # Beyond the limit of file sizes a process gets SIGXFSZ, which the program may not ignore.
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if resource.RLIM_INFINITY != limit < end:
            raise OSError("files of this process may not become so large")
        # Touching a page for which the disk has no room kills the process (SIGBUS).
        os.posix_fallocate(descriptor, start, end - start)
        self.allocated_bytes = max(end, self.allocated_bytes)

    def _give_pages_back(self, until_bytes):
        """Return written pages to the system; they stay in the file and are read again when touched."""
        start, end = self._returned_bytes, until_bytes & -CHUNK_BYTES
        if end > start:
            self._returned_bytes = end
            self._libc.madvise(
                ctypes.c_void_p(self._address + start), ctypes.c_size_t(end - start), MADV_DONTNEED
            )


def _create(directory, host):
    """Return the path and descriptor of a new file; its last number distinguishes programs that a process exec'ed."""
    prefix = "%s/%s-%d-%d-" % (directory, host, os.getpid(), _start_ticks())
    sequence = 0
    while True:
        path = prefix + "%d.pwj" % sequence
        try:
            return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            sequence += 1


def _start_ticks():
    """Return when this process started, in clock ticks since boot; 0 where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _map(libc, descriptor, size):
    """Return the address of the mapped file; OSError if there is no room for it."""
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    address = libc.mmap(None, size, PROT_READ_WRITE, MAP_SHARED, descriptor, 0)
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), "the journal cannot be mapped")
    return address
