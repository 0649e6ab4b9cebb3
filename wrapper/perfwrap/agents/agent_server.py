"""The server of `perfwrap mcp`: the Model Context Protocol over standard input and output, by its official SDK.

The tools run perfwrap's own commands, one at a time because each measures, and answer in a few hundred tokens. What an
agent asks for is checked by the workspace. Needs the package ``mcp`` (version 2).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from perfwrap import __version__, run_folder
from perfwrap.agents import agent_answers
from perfwrap.agents.workspace import Workspace
from perfwrap.analysis import run_names
from perfwrap.errors import PerfwrapError
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id

INSTRUCTIONS = (
    "Finds why a PyTorch training command is slow. Call run first, with a few hundred steps. Then fix returns a patch "
    "that is proven faster with the same results; try_changes measures settings. Rely on measured figures, not on "
    "predictions. A verdict 'unknown' is no verdict."
)
CHANGE = re.compile(r"[a-z][a-z0-9=+._-]*")
TICK_SECONDS = 5.0
GRACE_SECONDS = 60.0
"""How long a command may take to end after it was interrupted: perfwrap then still reports."""
MAX_LOG_BYTES = 64 << 10
MAX_HEADING = 700
"""Characters of each part of an explanation."""

Command = Annotated[list[str], Field(description='Words, e.g. ["python", "train.py", "--max-steps", "300"]')]
Seconds = Annotated[int, Field(ge=5, le=7200, description="Time limit")]
Run = Annotated[str, Field(description="A run's name")]
Tick = Callable[[float], Awaitable[None]]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)


@dataclass
class Ended:
    """How a command of perfwrap ended, and the end of what it printed."""

    code: int
    printed: str
    in_time: bool


class Tools:
    """The tools, on one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        """Take the workspace; commands run one after the other."""
        self.workspace = workspace
        self._turn = asyncio.Lock()

    async def run(self, command: Command, context: Context, max_seconds: Seconds = 600) -> str:
        """Record a training command and say what limits it: verdict, costliest findings with line and fix."""
        path, ended = await self._record("run", command, [], max_seconds, context)
        return self._of_run(path, path, ended)

    async def inspect(self, command: Command, context: Context, max_seconds: Seconds = 600) -> str:
        """Cost of each line of a step and work that is wasted, for a verdict that names the model's own work."""
        words = ["--timeout", str(max_seconds)]
        path, ended = await self._record("inspect", command, words, max_seconds + 30, context)
        inner = path / "inspect" / run_names.TRIAL_RUN
        answer = self._of_run(inner, path, ended)
        lines = agent_answers.of_lines(self._read(inner, run_folder.DIAGNOSIS), str(self.workspace.root))
        return f"{answer}\n{lines}" if lines else answer

    async def findings(self, run: Run = run_names.LATEST) -> str:
        """The answer of `run` again, for a recorded run."""
        path = self._guarded(self.workspace.run, run)
        if run_names.is_trial(path):
            return self._of_trial(path)
        if not (path / run_folder.DIAGNOSIS).is_file():
            async with self._turn:
                await self._perfwrap(["report", str(path), "--format", "json"], 300, _no_tick)
        return self._of_run(path, path, None)

    async def explain(self, rule: Annotated[str, Field(description="A rule of a finding")]) -> str:
        """What a rule finds, how to fix it, and when it is wrong."""
        from perfwrap.reports.terminal.explanation import sections, summary

        rules = {rule_id(module): module for module in RULES}
        if rule not in rules:
            raise ToolError(f"There is no rule {rule!r}. Use the rule of a finding.")
        parts = sections(rules[rule])
        shown = [
            f"{heading}: {agent_answers.shortened(' '.join(parts[heading]), MAX_HEADING)}"
            for heading in ("What it finds", "How to fix", "When it is wrong")
            if heading in parts
        ]
        return "\n".join([f"{rule}: {summary(rules[rule])}", *shown])

    async def try_changes(
        self,
        command: Command,
        context: Context,
        changes: Annotated[
            list[str] | None,
            Field(description='E.g. ["workers=4", "bf16"]; those that the diagnosis suggests by default'),
        ] = None,
        max_seconds: Seconds = 600,
    ) -> str:
        """Measure settings in turns with the unchanged program, without editing it."""
        wrong = next((word for word in changes or () if not CHANGE.fullmatch(word)), None)
        if wrong is not None:
            raise ToolError(f"{wrong!r} is not a change, such as workers=4.")
        before = ["--max-time", str(max_seconds)]
        path, ended = await self._record(
            "try", command, before, max_seconds + 300, context, tuple(changes or ())
        )
        return self._of_trial(path, ended)

    async def fix(self, command: Command, context: Context, max_seconds: Seconds = 900) -> str:
        """A patch that is proven faster and to compute the same, as a diff; your files stay as they are."""
        words = ["--max-time", str(max_seconds)]
        path, ended = await self._record("fix", command, words, max_seconds + 300, context)
        return self._of_trial(path, ended)

    def list_runs(self) -> str:
        """Return the names of the runs, the newest last, with the documents that each has."""
        from perfwrap.agents.workspace import DOCUMENTS

        rows = {
            path.name: [name for name in DOCUMENTS if (path / name).is_file()]
            for path in self.workspace.runs()
        }
        return json.dumps(rows, indent=1)

    def read_document(self, run: str, document: str) -> str:
        """Return a document of a run."""
        try:
            return self.workspace.document(run, document)
        except PerfwrapError as error:
            raise ResourceError(f"{error.message} {error.hint}".strip()) from None

    async def _record(
        self,
        verb: str,
        command: list[str],
        options: list[str],
        seconds: float,
        context: Context,
        changes: tuple[str, ...] = (),
    ) -> tuple[Path, Ended]:
        """Run a command of perfwrap on a training command; return its folder and how it ended."""
        words: list[str] = self._guarded(self.workspace.demand_command, command)

        async def tick(elapsed: float) -> None:
            await context.report_progress(elapsed, message=f"perfwrap {verb}: {elapsed:.0f} s")

        async with self._turn:
            path = self.workspace.new_run(verb, words)
            given = [verb, "--out", str(path), *options, *changes, "--", *words]
            ended = await self._perfwrap(given, seconds, tick)
        return self.workspace.root / path, ended

    async def _perfwrap(self, words: list[str], seconds: float, tick: Tick) -> Ended:
        """Run perfwrap; interrupt it, as Ctrl-C does, when the time is over or the agent cancels the call."""
        with tempfile.TemporaryFile() as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perfwrap", *words),
                cwd=self.workspace.root,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            began, in_time = time.monotonic(), True
            try:
                while not await _has_ended(process, TICK_SECONDS):
                    elapsed = time.monotonic() - began
                    if elapsed > seconds:
                        in_time = False
                        break
                    await tick(elapsed)
            finally:
                with anyio.CancelScope(shield=True):
                    await _interrupt(process)
            log.seek(max(0, log.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
            printed = log.read().decode("utf-8", "replace")
        return Ended(process.returncode if process.returncode is not None else 1, printed, in_time)

    def _of_run(self, path: Path, named: Path, ended: Ended | None) -> str:
        """Return the answer about one run; ToolError with what was printed if there is no diagnosis."""
        diagnosis = self._read(path, run_folder.DIAGNOSIS)
        if not diagnosis:
            raise ToolError(_failure(ended))
        root = str(self.workspace.root)
        answer = agent_answers.of_run(named.name, diagnosis, root)
        if ended is not None and not ended.in_time:
            answer += "\nThe time limit ended the command early."
        if (diagnosis.get("steps") or {}).get("count") or ended is None:
            return answer
        return f"{answer}\nThe command printed:\n{agent_answers.of_output(ended.printed)}"

    def _of_trial(self, path: Path, ended: Ended | None = None) -> str:
        """Return the answer about a trial or a fix."""
        fix = self._read(path, run_names.FIX)
        if fix:
            return agent_answers.of_fix(path.name, fix)
        trial = self._read(path, run_names.TRY)
        if trial:
            return agent_answers.of_trial(path.name, trial)
        raise ToolError(_failure(ended))

    def _read(self, path: Path, name: str) -> dict[str, Any]:
        """Return a JSON document of a run; empty if there is none."""
        try:
            found = json.loads((path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the workspace; what it refuses becomes an error that the agent reads."""
        try:
            return function(*arguments)
        except PerfwrapError as error:
            raise ToolError(f"{error.message} {error.hint}".strip()) from None


def _failure(ended: Ended | None) -> str:
    """Return why there is no result."""
    if ended is None:
        return "This run has no diagnosis."
    limit = "" if ended.in_time else " The time limit was reached."
    return f"There is no result (exit code {ended.code}).{limit}\n{agent_answers.of_output(ended.printed)}"


async def _no_tick(elapsed: float) -> None:
    """Report no progress."""


async def _has_ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait for a process, at most that long; return whether it has ended."""
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True


async def _interrupt(process: asyncio.subprocess.Process) -> None:
    """End a process and its group if it still runs: as Ctrl-C, and for good after GRACE_SECONDS."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.returncode is not None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        await _has_ended(process, GRACE_SECONDS)


def make(workspace: Workspace) -> MCPServer:
    """Return the server with its tools and resources."""
    tools = Tools(workspace)
    server = MCPServer("perfwrap", version=__version__, instructions=INSTRUCTIONS)
    for tool in (tools.run, tools.inspect, tools.try_changes, tools.fix):
        server.add_tool(tool, annotations=RUNS, structured_output=False)
    for reader in (tools.findings, tools.explain):
        server.add_tool(reader, annotations=READS, structured_output=False)
    server.resource("perfwrap://runs", mime_type="application/json", description="All runs.")(tools.list_runs)
    server.resource(
        "perfwrap://runs/{run}/{document}", description="diagnosis.json, try.json, fix.json, perfwrap.patch."
    )(tools.read_document)
    return server


def serve(root: Path) -> None:
    """Serve one client over standard input and output until it closes them; PerfwrapError without that folder."""
    try:
        workspace = Workspace(root)
        os.chdir(workspace.root)
    except OSError as error:
        raise PerfwrapError(f"{root}: {error.strerror}.", "Give a folder with a training script.") from error
    make(workspace).run("stdio")
