"""`perfwrap mcp` over the real protocol: from the question to a proven patch, in few calls and few tokens."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id

from tests.end_to_end.test_fix import program

pytest.importorskip("mcp", reason="needs the package mcp")

from mcp import Client, StdioServerParameters  # noqa: E402

pytestmark = [pytest.mark.timeout(1800)]

MAX_CALLS, MAX_TOKENS = 4, 4_000
CHARACTERS_PER_TOKEN = 3
"""Fewer than the four of English text, because much of it is names and figures."""


class Agent:
    """A client that counts what a language model would read and write."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls = 0
        self.characters = len(client.instructions or "")

    async def learn_tools(self) -> list[str]:
        """List the tools, as a host does before the model's first word."""
        tools = (await self.client.list_tools()).tools
        for tool in tools:
            self.characters += len(tool.name) + len(tool.description) + len(json.dumps(tool.input_schema))
        return [tool.name for tool in tools]

    async def call(self, name: str, **arguments: Any) -> Any:
        """Call a tool."""
        self.calls += 1
        result = await self.client.call_tool(name, arguments)
        (content,) = result.content
        self.characters += len(name) + len(json.dumps(arguments)) + len(content.text)
        return result

    @property
    def tokens(self) -> float:
        """The number of tokens so far."""
        return self.characters / CHARACTERS_PER_TOKEN


def serve(folder: Path, work: Callable[[Any], Awaitable[None]]) -> None:
    """Start the server for a folder as a host does, and let the work talk to it."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    kept = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "perfwrap", "mcp", str(folder)],
        env={"PATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1", **kept},
    )

    async def talk() -> None:
        async with Client(server) as client:
            await work(client)

    asyncio.run(talk())


@pytest.mark.timing
@pytest.mark.torch
def test_from_the_question_to_a_proven_patch_in_four_calls_and_4000_tokens(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = program(tmp_path / "work", 0.02)
    command = ["python", "train.py"]

    async def work(client: Any) -> None:
        agent = Agent(client)
        assert set(await agent.learn_tools()) == {
            "run",
            "inspect",
            "findings",
            "explain",
            "try_changes",
            "fix",
        }
        # The program never ends by itself: the time limit ends it, and perfwrap reports.
        diagnosed = await agent.call("run", command=command, max_seconds=10)
        assert not diagnosed.is_error, diagnosed.content[0].text
        text = diagnosed.content[0].text
        assert "Data-bound" in text
        assert "1. data_loader_single_process (critical" in text
        assert ", train.py:" in text
        explained = await agent.call("explain", rule="data_loader_single_process")
        assert "When it is wrong" in explained.content[0].text
        fixed = await agent.call("fix", command=command, max_seconds=600)
        answer = fixed.content[0].text
        assert not fixed.is_error, answer
        assert answer.startswith("Proven: step time 0.")
        patch = answer[answer.index("diff --git ") :]
        assert agent.calls <= MAX_CALLS
        print(f"{agent.calls} calls, {agent.tokens:.0f} tokens")
        assert agent.tokens <= MAX_TOKENS, agent.tokens

        found = await client.read_resource("perfwrap://runs")
        runs = json.loads(found.contents[0].text)
        (name,) = (name for name, documents in runs.items() if "perfwrap.patch" in documents)
        whole = await client.read_resource(f"perfwrap://runs/{name}/perfwrap.patch")
        assert whole.contents[0].text.rstrip("\n") == patch
        subprocess.run(["patch", "-p1"], input=patch + "\n", text=True, cwd=folder, check=True)
        assert re.search(r"num_workers=\d", (folder / "train.py").read_text())

    serve(folder, work)


def test_what_is_outside_of_the_folder_is_refused_and_said(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret.py").write_text("")

    async def work(client: Any) -> None:
        agent = Agent(client)
        for command in (["python", "../secret.py"], ["bash", "-c", "true"], ["python", "-c", "pass"]):
            refused = await agent.call("run", command=command)
            assert refused.is_error
            assert "python" in refused.content[0].text
        assert (await agent.call("findings", run="../secret")).is_error
        assert (await agent.call("explain", rule="no_such_rule")).is_error
        assert (
            await agent.call("try_changes", command=["python", "x.py"], changes=["--out=/tmp/x"])
        ).is_error
        for address in ("perfwrap://runs/x/run.json", "perfwrap://runs/..%2Fx/diagnosis.json"):
            with pytest.raises(Exception, match=r".+"):
                await client.read_resource(address)

    serve(tmp_path / "work", work)
    assert not (tmp_path / "work" / "perfwrap-runs").exists()


def test_a_command_that_fails_is_an_answer_with_what_it_printed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('no data here')")

    async def work(client: Any) -> None:
        result = await Agent(client).call("run", command=["python", "train.py"])
        assert "no data here" in result.content[0].text

    serve(tmp_path, work)


def test_every_explanation_is_short(tmp_path: Path) -> None:
    async def work(client: Any) -> None:
        for rule in RULES:
            agent = Agent(client)
            await agent.call("explain", rule=rule_id(rule))
            assert agent.tokens < 1_000, rule

    serve(tmp_path, work)


def test_the_skill_is_printed_as_it_is_packaged() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", "skill"], capture_output=True, text=True, check=True
    )
    head, _, body = done.stdout.partition("\n---\n")
    assert head.startswith("---\nname: perfwrap\ndescription: ")
    for command in re.findall(r"`perfwrap ([a-z]+)", body):
        subprocess.run([sys.executable, "-m", "perfwrap", command, "--help"], capture_output=True, check=True)
