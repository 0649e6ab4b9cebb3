"""All that is set up around the command to record it, as far as that is possible, and its orderly end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.launch import ending, injection, jobs, joining, kernel, manifest, registered, sidecar
from perfwrap.launch.options import Options
from perfwrap.launch.signals import Supervisor
from perfwrap.run_folder import RunFolder


@dataclass
class Recording:
    """What could be set up; without a folder nothing is recorded."""

    folder: RunFolder | None = None
    changes: dict[str, str] = field(default_factory=dict)
    """What is different in the command's environment."""
    monitors: sidecar.Sidecar | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What could not be set up, and why."""
    memory: ending.MemoryCounts = ending.UNKNOWN
    """What was counted before the command ran."""
    child: int = 0
    """The command's process."""
    leads: bool = True
    """Whether this launcher speaks for the run, where several joined it."""

    def prepare(self, command: list[str], options: Options, variables: Mapping[str, str]) -> None:
        """Set up as much as is possible, and note what is not."""
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
            )
        except (PerfwrapError, OSError) as error:
            self.problems.append(f"the Python processes of this run are not recorded: {error}")
        if options.monitors:
            job = jobs.find(variables, options.run_id)
            hook = self.changes.get("PYTHONPATH", str(folder.inject)).split(os.pathsep)[0]
            try:
                local_rank = (job.local_rank if job else None) or 0
                self.monitors = sidecar.start(folder, options, hook, local_rank=local_rank)
                if options.py_spy and self.changes and kernel.yama_restricts():
                    injection.name_ptracer(folder, self.monitors.pid)
            except OSError as error:
                self.problems.append(f"host and GPU are not watched: {error}")

    def _make_folder(
        self, command: list[str], options: Options, variables: Mapping[str, str]
    ) -> tuple[RunFolder, dict[str, Any] | None]:
        """Make a run folder, or this launcher's part of one that others have joined or will join."""
        job = jobs.find(variables, options.run_id)
        if job is None:
            return run_folder.create(options.out, command, options.name), None
        folder, self.leads = joining.join(options.out, command, options.name, job)
        place = asdict(job)
        return folder, {"job": place.pop("id"), **place, "leads": self.leads}

    def watch(self, child: int) -> None:
        """Say which process is the command."""
        self.child = child
        if self.monitors is not None:
            self.monitors.watch(child)

    def finish(self, supervisor: Supervisor, status: int) -> list[str]:
        """Write down how the command ended and let the others end; return what went wrong meanwhile."""
        if self.folder is None:
            return []
        end = manifest.clock_pair()
        how = self._how_it_ended(self.folder, status)
        if self.monitors is not None:
            self.monitors.dismiss(how)
        problems = self._write_end(self.folder, how, end, self.problems)
        registered.wait(self.folder, supervisor)
        problem = self.monitors.wait(supervisor) if self.monitors is not None else None
        if problem is not None:
            warning = f"the monitors {problem}"
            problems = [warning, *self._write_end(self.folder, how, end, [*self.problems, warning])]
        return problems

    def _write_end(
        self, folder: RunFolder, how: dict[str, Any], end: dict[str, int], warnings: list[str]
    ) -> list[str]:
        """Write down how and when the command ended; return what went wrong, if anything."""
        try:
            folder.write_manifest(manifest.finish(self.manifest, how, end, warnings))
        except OSError as error:
            return [f"the end of this run could not be written down: {error}"]
        return []

    def _how_it_ended(self, folder: RunFolder, status: int) -> dict[str, Any]:
        """Return exit code or signal, and whether memory had run out."""
        begun = self.manifest["start"]["monotonic_ns"]
        memory = ending.find_out_of_memory(folder, self.child, status, self.memory, begun)
        return ending.describe(status, memory)


def refuse_used(options: Options, variables: Mapping[str, str]) -> None:
    """Raise PerfwrapError when the folder that the user asked for holds something already that is not this run."""
    out = options.out
    job = jobs.find(variables, options.run_id)
    try:
        if out is not None and job is not None:
            joining.check(out, job)
            return
        is_folder = out is not None and out.is_dir()
        used = out is not None and out.exists() and (not is_folder or any(out.iterdir()))
    except OSError:
        return  # Not a mistake of the command line: the command will run unrecorded.
    if used:
        raise PerfwrapError(
            f"{out} is not empty." if is_folder else f"{out} is a file.",
            "Give all ranks the same --run-id NAME: nobody names their job, and each is a run of its own."
            if jobs.is_unnamed_rank(variables, options.run_id)
            else "Give --out a new folder; perfwrap never overwrites a run.",
        )
