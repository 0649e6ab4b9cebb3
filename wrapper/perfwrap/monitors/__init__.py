"""Watchers beside the program; one file each."""

MONITORS = (
    (("host", "cgroup", "processes"), True),
    (("gpu",), True),
    (("gpm", "nvlink", "gpu_health", "pcie"), False),
    (("pyspy",), True),
    (("stalls", "metrics"), False),
)
"""A row is a thread: its modules, and whether it looks ten times a second or once.

What can be read without waiting shares a thread, because waking up costs more than looking.
"""
