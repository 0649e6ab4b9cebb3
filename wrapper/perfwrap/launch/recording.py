"""Sets up the recording of a command as far as possible, and ends it."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.launch import ending, injection, jobs, joining, kernel, manifest, registered, sidecar_process
from perfwrap.launch.options import Options
from perfwrap.launch.signals import Supervisor
from perfwrap.run_folder import RunFolder


@dataclass
class Recording:
    """The parts of the recording that were set up; without a folder nothing is recorded."""

    folder: RunFolder | None = None
    changes: dict[str, str] = field(default_factory=dict)
    """The changes of the command's environment."""
    monitors: sidecar_process.Sidecar | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """The parts that could not be set up, and why."""
    memory: ending.MemoryCounts = ending.UNKNOWN
    """The memory counts before the command ran."""
    child: int = 0
    """The command's process."""
    leads: bool = True
    """Whether this launcher prints the report, if several joined the run."""

    def prepare(self, command: list[str], options: Options, variables: Mapping[str, str]) -> None:
        """Set up as much as possible, and note what is not."""
        try:
            folder, part = self._make_folder(command, options, variables)
            self.manifest = manifest.begin(command, options, variables, part)
            folder.write_manifest(self.manifest)
        except (PerfwrapError, OSError) as error:
            advice = f" {error.hint}" if isinstance(error, PerfwrapError) else ""
            self.problems.append(f"this run is not recorded: {error}{advice}")
            return
        self.folder, self.memory = folder, ending.count()
        try:
            self.changes = injection.prepare(
                folder,
                variables,
                nvtx=options.nvtx,
                budget_bytes=options.budget_bytes,
                sample_hz=options.sample_hz,
                max_overhead=options.max_overhead,
                window=options.window,
                window_detail=options.window_detail,
                window_ranks=options.window_ranks,
                trial=options.trial,
                overlay=options.overlay,
                inspect=options.inspect,
            )
        except (PerfwrapError, OSError) as error:
            self.problems.append(f"the Python processes of this run are not recorded: {error}")
        if options.monitors:
            job = jobs.find(variables, options.run_id)
            hook = self.changes.get("PYTHONPATH", str(folder.inject)).split(os.pathsep)[0]
            try:
                local_rank = (job.local_rank if job else None) or 0
                self.monitors = sidecar_process.start(folder, options, hook, local_rank=local_rank)
                if options.py_spy and self.changes and kernel.yama_restricts():
                    injection.name_ptracer(folder, self.monitors.pid)
            except OSError as error:
                self.problems.append(f"host and GPU are not monitored: {error}")

    def _make_folder(
        self, command: list[str], options: Options, variables: Mapping[str, str]
    ) -> tuple[RunFolder, dict[str, Any] | None]:
        """Create a run folder, or this launcher's part of a shared one."""
        job = jobs.find(variables, options.run_id)
        if job is None:
            return run_folder.create(options.out, command, options.name), None
        folder, self.leads = joining.join(options.out, command, options.name, job)
        place = asdict(job)
        return folder, {"job": place.pop("id"), **place, "leads": self.leads}

    def watch(self, child: int) -> None:
        """Set the process of the command."""
        self.child = child
        if self.monitors is not None:
            self.monitors.watch(child)

    def finish(self, supervisor: Supervisor, status: int) -> list[str]:
        """Record how the command ended and end the monitors; return the problems."""
        if self.folder is None:
            return []
        end = manifest.clock_pair()
        # Only of children that were waited for: the monitors and their children are not included yet.
        command = _seconds_of_children()
        self.manifest |= {"processor_seconds": {"command": command, "monitors": None}}
        how = self._how_it_ended(self.folder, status)
        if self.monitors is not None:
            self.monitors.dismiss(how)
        problems = self._write_end(self.folder, how, end, self.problems)
        registered.wait(self.folder, supervisor)
        problem = self.monitors.wait(supervisor) if self.monitors is not None else None
        warnings = [] if problem is None else [f"the monitors {problem}"]
        if self.monitors is not None:
            self.manifest["processor_seconds"]["monitors"] = _seconds_of_children() - command
            problems = [*warnings, *self._write_end(self.folder, how, end, [*self.problems, *warnings])]
        return problems

    def _write_end(
        self, folder: RunFolder, how: dict[str, Any], end: dict[str, int], warnings: list[str]
    ) -> list[str]:
        """Record how and when the command ended; return what went wrong, if anything."""
        try:
            folder.write_manifest(manifest.finish(self.manifest, how, end, warnings))
        except OSError as error:
            return [f"cannot write the end of this run: {error}"]
        return []

    def _how_it_ended(self, folder: RunFolder, status: int) -> dict[str, Any]:
        """Return exit code or signal, and whether memory ran out."""
        begun = self.manifest["start"]["monotonic_ns"]
        memory = ending.find_out_of_memory(folder, self.child, status, self.memory, begun)
        return ending.describe(status, memory)


def _seconds_of_children() -> float:
    """Return the CPU time in seconds of all children that were waited for, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def refuse_used(options: Options, variables: Mapping[str, str]) -> None:
    """Raise PerfwrapError if the requested folder contains files that are not of this run."""
    out = options.out
    job = jobs.find(variables, options.run_id)
    try:
        if out is not None and job is not None:
            joining.check(out, job)
            return
        is_folder = out is not None and out.is_dir()
        used = out is not None and out.exists() and (not is_folder or any(out.iterdir()))
    except OSError:
        return  # This is not an error in the command line: the command runs without recording.
    if used:
        raise PerfwrapError(
            f"{out} is not empty." if is_folder else f"{out} is a file.",
            "Give all ranks the same --run-id ID; without it, each rank is a separate run."
            if jobs.is_unnamed_rank(variables, options.run_id)
            else "Choose a new folder with --out; perfwrap never overwrites a run.",
        )
