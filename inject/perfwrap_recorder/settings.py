"""Read the settings that the launcher wrote for this run.

The settings are in a file next to the recorder, not in environment variables: launchers that pass PYTHONPATH
to other machines drop variables that they do not know. Each line is ``key=value``.
"""

from __future__ import annotations

import os

DEFAULT_BUDGET_BYTES = 256 << 20
DEFAULT_MAX_OVERHEAD = 0.005
SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."


class Settings:
    """The launcher's settings as plain attributes."""

    __slots__ = (
        "budget_bytes",
        "changes",
        "data",
        "host",
        "inspect",
        "max_overhead",
        "nvtx",
        "ptracer_pid",
        "run_dir",
        "sample_hz",
        "trial_perturbation",
        "trial_precision",
        "trial_seconds",
        "trial_steps",
        "trial_values",
        "trial_warm_up",
        "trial_writes",
        "watched",
        "window",
        "window_detail",
        "window_ranks",
    )

    def __init__(
        self,
        run_dir,
        host="",
        budget_bytes=DEFAULT_BUDGET_BYTES,
        nvtx=False,
        data="",
        sample_hz=0.0,
        ptracer_pid=0,
        max_overhead=DEFAULT_MAX_OVERHEAD,
        window="",
        window_detail="",
        window_ranks="0",
        changes=(),
        trial_steps=0,
        trial_warm_up="auto",
        trial_precision=0.0,
        trial_writes="skip",
        watched=False,
        inspect=False,
        trial_values="",
        trial_perturbation=0,
        trial_seconds=0.0,
    ):
        self.run_dir = run_dir
        """The run folder, an absolute path."""
        self.host = host or host_name()
        """This machine's name in file names."""
        self.budget_bytes = budget_bytes
        """Maximum size of this process's journal."""
        self.nvtx = nvtx
        """Whether to push NVTX ranges."""
        self.data = data
        """The directory of the settings and the recorder's source."""
        self.sample_hz = sample_hz
        """Stack samples per second; 0 for none."""
        self.ptracer_pid = ptracer_pid
        """The process that is allowed to ptrace this one; 0 for none in addition."""
        self.max_overhead = max_overhead
        """Maximum overhead of detail, as a share of the steps' time."""
        self.window = window
        """Steps to record with torch's profiler: "auto", "steady", "worst", "5@100" (5 after 100), "" for none."""
        self.window_detail = window_detail
        """What it records in addition: of "shapes,stack,memory,flops"."""
        self.window_ranks = window_ranks
        """Which of several ranks do so: "0" or "all"."""
        self.changes = changes
        """Changes to the program: "workers=8", "bf16"; see ``changes/``."""
        self.trial_steps = trial_steps
        """The process ends itself after this many steady steps; 0 for never."""
        self.trial_warm_up = trial_warm_up
        """Number of warm-up steps; "auto": until step times are steady."""
        self.trial_precision = trial_precision
        """It ends earlier if the median step time is known with this relative precision; 0 for never."""
        self.trial_writes = trial_writes
        """Whether such a process writes checkpoints: "allow" or "skip"."""
        self.watched = watched
        """Whether to record only as long as ``perfwrap attach`` runs."""
        self.inspect = inspect
        """Whether to write what each operation of a few steps reads and writes."""
        self.trial_values = trial_values
        """The seed of a trial that writes losses and parameters instead of being timed; "" for none."""
        self.trial_perturbation = trial_perturbation
        """The seed of small changes of its parameters at the start; 0 for none."""
        self.trial_seconds = trial_seconds
        """It does not end before its steady steps took this long; 0 for no such limit."""


def host_name() -> str:
    """Return this machine's name with every run of unusual characters replaced by one underscore."""
    name = "".join(letter if letter in SAFE else "\n" for letter in os.uname().nodename)
    while "\n\n" in name:
        name = name.replace("\n\n", "\n")
    return name.replace("\n", "_") or "host"


def read(data: str, run_dir: str) -> Settings:
    """Return the settings in the directory ``data``, for the run folder ``run_dir``."""
    values = {}
    with open(data + "/settings", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            key, _, value = line.rstrip("\n").partition("=")
            values[key] = value
    return Settings(
        run_dir,
        values.get("host", ""),
        int(values.get("budget_bytes", DEFAULT_BUDGET_BYTES)),
        values.get("nvtx") == "1",
        data,
        float(values.get("sample_hz") or 0),
        int(values.get("ptracer_pid") or 0),
        float(values.get("max_overhead") or DEFAULT_MAX_OVERHEAD),
        values.get("window", ""),
        values.get("window_detail", ""),
        values.get("window_ranks", "0"),
        tuple(values.get("changes", "").split()),
        int(values.get("trial_steps") or 0),
        values.get("trial_warm_up") or "auto",
        float(values.get("trial_precision") or 0),
        values.get("trial_writes") or "skip",
        values.get("watched") == "1",
        values.get("inspect") == "1",
        values.get("trial_values", ""),
        int(values.get("trial_perturbation") or 0),
        float(values.get("trial_seconds") or 0),
    )
