"""Serve language-model agents: the Model Context Protocol over standard input and output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.errors import PerfwrapError

HERE = Path()


def mcp_(
    folder: Annotated[
        Path, typer.Argument(help="The folder with the training script.", show_default="the current one")
    ] = HERE,
) -> None:
    """Serve language-model agents (MCP) for the scripts of one folder.

    Tools run, inspect, findings, explain, try_changes and fix answer in a few hundred tokens; run folders are
    resources. Only scripts inside of FOLDER are run, and only its runs are read. Needs: pip install 'perfwrap[mcp]'.
    """
    try:
        from perfwrap.agents.agent_server import serve
    except ImportError as error:
        raise PerfwrapError(
            f"The server needs the package mcp, version 2: {error}.",
            f"Install it: {sys.executable} -m pip install 'perfwrap[mcp]'",
        ) from error
    serve(folder)
