"""The GitHub action: its script profiles a real training, comments once, and fails on a regression."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    time.sleep(0.003)
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
print("trained")
"""
NUMBER = 7


@dataclass
class GitHub:
    """A server with the two addresses of GitHub's API that the action uses; it keeps the comments."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    refuses: bool = False


@pytest.fixture
def github() -> Iterator[GitHub]:
    """A running server."""
    state = GitHub(comments=[{"id": 1, "body": "A comment of somebody else."}])

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, content: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def body(self) -> str:
            return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

        def do_GET(self) -> None:
            state.tokens.add(self.headers["Authorization"])
            assert self.path.startswith(f"/repos/me/net/issues/{NUMBER}/comments?")
            self.answer(200, state.comments)

        def do_POST(self) -> None:
            body = self.body()
            if state.refuses:
                self.answer(403, {"message": "Resource not accessible by integration"})
                return
            assert self.path == f"/repos/me/net/issues/{NUMBER}/comments"
            state.comments.append({"id": len(state.comments) + 1, "body": body})
            self.answer(201, state.comments[-1])

        def do_PATCH(self) -> None:
            body = self.body()
            (found,) = (
                each for each in state.comments if self.path.endswith(f"/issues/comments/{each['id']}")
            )
            found["body"] = body
            self.answer(200, found)

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Workflow:
    """A job of GitHub Actions on this machine; perfwrap is that of this environment instead of a new one."""

    repository: Path
    folder: Path
    url: str

    def measure(self, command: str, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
        """Run the script as action.yml does; return what it printed, and its outputs."""
        places = self.folder / "temp" / "perfwrap" / "venv" / "bin"
        places.mkdir(parents=True, exist_ok=True)
        for name, words in (("perfwrap", "-m perfwrap"), ("python", "")):
            (places / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (places / name).chmod(0o755)
        event = self.folder / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": NUMBER}}))
        output = self.folder / "output"
        output.write_text("")
        variables = {
            "PERFWRAP_ACTION": str(self.repository),
            "PERFWRAP_COMMAND": command,
            "PERFWRAP_RUNS": "1",
            "PERFWRAP_COMMENT": "true",
            "PERFWRAP_TOKEN": "secret",
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_API_URL": self.url,
            "GITHUB_REPOSITORY": "me/net",
            "GITHUB_WORKSPACE": str(self.folder),
            **inputs,
        }
        done = subprocess.run(
            ["bash", str(self.repository / "scripts" / "action" / "measure")],
            cwd=self.folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=280,
        )
        lines = output.read_text().splitlines()
        return done, dict(line.split("=", 1) for line in lines)


@pytest.fixture
def workflow(repository: Path, tmp_path: Path, github: GitHub) -> Workflow:
    """A job whose repository has one training script."""
    (tmp_path / "train.py").write_text(SCRIPT)
    return Workflow(repository, tmp_path, github.url)


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="the action profiles a real training")
def test_it_comments_the_verdict_and_fails_on_a_regression(workflow: Workflow, github: GitHub) -> None:
    command = f'{sys.executable} train.py && test -z "$PERFWRAP_TOKEN"'
    done, outputs = workflow.measure(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained\n" in done.stdout
    assert "::notice title=perfwrap::" in done.stdout
    diagnosis = json.loads(Path(outputs["diagnosis"]).read_text())
    assert outputs["verdict"] == diagnosis["verdict"]["id"]
    assert (outputs["state"], diagnosis["steps"]["count"]) == ("", 200)
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(outputs["report"]).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert diagnosis["verdict"]["sentence"][:20] in (workflow.folder / "summary.md").read_text()
    (_, comment) = github.comments
    assert comment["body"].startswith("<!-- perfwrap -->\n### perfwrap")
    assert github.tokens == {"Bearer secret"}

    stretches = diagnosis["steps"]["stretches"]
    stretches["mean_ns"] = [mean // 3 for mean in stretches["mean_ns"]]
    diagnosis["steps"]["median_ns"] //= 3
    (workflow.folder / "baseline.json").write_text(json.dumps(diagnosis))
    done, outputs = workflow.measure(command, PERFWRAP_BASELINE="baseline.json", PERFWRAP_ALLOW="load")
    assert done.returncode == 10, done.stdout + done.stderr
    assert outputs["state"] == "regression"
    assert "::error title=perfwrap check%3A regression::" in done.stdout
    (_, comment) = github.comments
    assert "regression" in comment["body"]
    assert "### perfwrap" in comment["body"]


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="the action profiles a real training")
def test_a_comment_that_github_refuses_is_a_warning(workflow: Workflow, github: GitHub) -> None:
    github.refuses = True
    done, outputs = workflow.measure(f"{sys.executable} train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::warning title=perfwrap::The comment could not be written: HTTP Error 403" in done.stdout
    assert outputs["verdict"]


def test_the_commands_own_exit_code_ends_the_job(workflow: Workflow) -> None:
    done, outputs = workflow.measure("exit 3")
    assert done.returncode == 3
    assert outputs == {}


def test_every_input_reaches_the_script_as_a_variable(repository: Path) -> None:
    action = (repository / "action.yml").read_text(encoding="utf-8")
    script = (repository / "scripts" / "action" / "measure").read_text(encoding="utf-8")
    inputs = re.findall(r"^  ([a-z-]+):$", action.partition("outputs:")[0], re.MULTILINE)
    assert len(inputs) == 8
    for name in inputs:
        variable = f"PERFWRAP_{name.replace('-', '_').upper()}"
        assert f"{variable}: ${{{{ inputs.{name} }}}}" in action
        assert f"${{{variable}" in script or f"${variable}" in script
    assert "${{" not in action.partition("      run: ")[2]
