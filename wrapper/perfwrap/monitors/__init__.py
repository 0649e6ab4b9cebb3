"""Monitors outside the program, a folder per topic."""

MODULES = {
    "host": "host.host_load",
    "cgroup": "host.cgroup",
    "processes": "processes.processes",
    "rapl": "host.rapl",
    "gpu": "gpu.nvidia",
    "gpm": "gpu.gpm",
    "nvlink": "gpu.nvlink",
    "gpu_health": "gpu.gpu_health",
    "pcie": "gpu.pcie",
    "pyspy": "pyspy.pyspy_sampling",
    "stalls": "stalls.stall_watch",
    "metrics": "metrics.metrics_monitor",
}
"""Each monitor, and the module whose ``watch()`` opens it."""

MONITORS = (
    (("host", "cgroup", "processes", "rapl"), True),
    (("gpu",), True),
    (("gpm", "nvlink", "gpu_health", "pcie"), False),
    (("pyspy",), True),
    (("stalls", "metrics"), False),
)
"""A row is a thread: its monitors, and whether it samples ten times a second or once.

Monitors that never block share a thread, because waking up costs more than sampling.
"""
