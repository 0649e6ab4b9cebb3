"""Nsight Compute as the prefix of the command: replays and measures a few launches of the longest kernels.

The options are described in NVIDIA's Nsight Compute CLI guide, "Command Line Options". The
options and sections of the installed version are read from its own help before the run. Replaying saves and restores
the GPU's memory and runs a kernel many times: the results of the program do not change, its times do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import option_name
from perfwrap.launch.tool_help import ToolHelp, answer, ask

PROGRAM = "ncu"
PACKAGE = "NVIDIA Nsight Compute"
INSTALL = (
    "It is in the CUDA toolkit (see /usr/local/cuda/bin), in the package nsight-compute of NVIDIA's apt and dnf "
    "repositories, and at https://developer.nvidia.com/nsight-compute."
)
TABLE = "ncu.csv"
LAUNCHES_EACH = 3
SKIPPED_EACH = 5
"""Launches of each kernel that are measured, and skipped before: the first ones fill caches."""
SECTIONS = (
    "SpeedOfLight",
    "Occupancy",
    "WarpStateStats",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "LaunchStats",
    "SpeedOfLight_RooflineChart",
)
NEEDED = ("--target-processes", "--csv", "--page", "--log-file")
BY_KERNEL = ("--kernel-name-base", "--kernel-name")
"""Options that every run needs, and those that choose kernels by their function."""
NEEDED_SECTION = SECTIONS[0]
"""Without it nothing is known about what limits a kernel."""
OLDEST = "2021.1"
"""A version that has all of these; the first with --kernel-name-base is 2020.3."""
NOT_PERMITTED = "ERR_NVGPUCTRPERM"
PERMISSION = (
    "ncu is not permitted to read the GPU counters; how an administrator permits it: "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
OURS = ("--csv", "--page", "--log-file", "--export", "-o")
"""Options that perfwrap needs for itself."""


NAMING = ("--kernel-name", "--kernel-id", "-k")


def names_kernels(options: tuple[str, ...]) -> bool:
    """Return whether the user's options select the kernels to measure."""
    return any(option_name(option) in NAMING for option in options)


class Ncu:
    """``ncu``, whose table goes to a file."""

    name = PROGRAM

    def __init__(self, options: tuple[str, ...], kernels: tuple[str, ...]) -> None:
        """Take the user's additional options, and the functions to measure."""
        self._options = options
        self._kernels = kernels
        self._help = ToolHelp()
        self._sections: tuple[str, ...] = SECTIONS

    def examine(self, path: str, environment: Mapping[str, str]) -> list[str]:
        """Ask the installed version for its options and sections; return what it lacks, in sentences.

        PerfwrapError if it lacks an option or a section without which nothing can be measured.
        """
        self._help = ask(path, ["--help"], environment)
        missing = self._help.lacks((*NEEDED, *(BY_KERNEL if self._kernels else ())))
        listed = set(re.findall(r"\w+", answer(path, ["--list-sections"], environment)))
        known = [name for name in SECTIONS if name in listed]
        if known and NEEDED_SECTION not in known:
            missing.append(f"section {NEEDED_SECTION}")
        if missing:
            raise PerfwrapError(
                f"The installed ncu {self._help.version} has no {', '.join(missing)}, which --ncu needs.",
                f"Install {PACKAGE} {OLDEST} or newer. {INSTALL}",
            )
        if not known or self._chooses_sections():
            return []
        self._sections = tuple(known)
        lost = [name for name in SECTIONS if name not in known]
        return [f"the installed ncu {self._help.version} lacks {', '.join(lost)}"] if lost else []

    def _chooses_sections(self) -> bool:
        """Return whether the user says what is measured."""
        return bool(set(map(option_name, self._options)) & {"--section", "--set", "--metrics"})

    def words(self, tools: Path) -> list[str]:
        """Return ``ncu`` with its options."""
        given = set(map(option_name, self._options))
        chosen: list[str] = []
        if self._kernels:
            names = "|".join(map(re.escape, self._kernels))
            chosen = ["--kernel-name-base=function", f"--kernel-name=regex:^({names})$"]
        if not given & {"--launch-count", "-c"}:
            chosen.append(f"--launch-count={LAUNCHES_EACH * max(1, len(self._kernels))}")
        if not given & {"--launch-skip", "-s"}:
            chosen.append(f"--launch-skip={SKIPPED_EACH * max(1, len(self._kernels))}")
        if not self._chooses_sections():
            chosen += [f"--section={name}" for name in self._sections]
        table = ["--csv", "--page=raw", f"--log-file={tools / TABLE}"]
        return [PROGRAM, "--target-processes=all", *chosen, *self._options, *table]

    def variables(self) -> dict[str, str]:
        """Return nothing: ncu needs no variables."""
        return {}

    def finish(self, tools: Path, run: Callable[[list[str]], int]) -> list[str]:
        """Return what went wrong; the table needs no conversion."""
        try:
            text = (tools / TABLE).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ["ncu wrote no table, so it measured nothing"]
        if NOT_PERMITTED in text:
            return [PERMISSION]
        if '"Process ID"' not in text:
            return ["ncu measured nothing: none of the chosen kernels was launched often enough"]
        return []
