"""Open the report or the timeline of a run in a browser."""

from __future__ import annotations

import hmac
import os
import secrets
import sys
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.analysis import run_names
from perfwrap.commands.options.output_options import Run
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say

REPORT = "report.html"
VIEWER = "https://ui.perfetto.dev"
PORT = 9001
"""The only local port from which the Perfetto page may fetch a trace (its content security policy)."""
TIMEOUT_SECONDS = 60
SILENCE_SECONDS = 2
"""A browser opens connections in advance and sends nothing on them; the server handles one at a time."""


def open_(
    run: Run = run_names.LATEST,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Open the timeline in ui.perfetto.dev. The data stays in the browser."),
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Only print the path of the file.")] = False,
) -> None:
    """Open the report or the timeline of a run in a browser.

    Without --trace, opens the report, or the timeline if there is no report. The Perfetto page fetches the trace from a
    local server that serves only this file, only to that page, and only once. Nothing is uploaded.
    """
    folder = run_names.find(str(run))
    report = folder / REPORT
    chosen = RunFolder(folder).trace if trace or not report.is_file() else report
    if not chosen.is_file():
        raise PerfwrapError(f"{folder} has no {chosen.name}.", f"Write it: perfwrap report --html {folder}")
    if path:
        # The name of a file is its bytes, whatever the encoding of the output.
        sys.stdout.buffer.write(os.fsencode(chosen.absolute()) + b"\n")
    elif chosen == report:
        _browse(chosen.absolute().as_uri(), chosen)
    else:
        _serve(chosen)


def _browse(address: str, file: Path) -> None:
    """Open an address in the browser; PerfwrapError if there is none."""
    if not webbrowser.open(address):
        raise PerfwrapError(
            "No browser could be started on this machine.",
            f"Copy {file.absolute()} to a machine with a browser and open it there.",
        )


def _serve(file: Path) -> None:
    """Serve the file to the Perfetto page until it was fetched."""
    try:
        server = OneFile(file, PORT)
    except OSError as error:
        raise PerfwrapError(
            f"Cannot listen on port {PORT}: {error.strerror}.",
            f"Open {VIEWER} and load {file.absolute()} there.",
        ) from error
    with server:
        address = f"{VIEWER}/#!/?url=http://127.0.0.1:{server.server_port}{server.place}"
        say(f"Opening {address}")
        _browse(address, file)
        server.timeout = TIMEOUT_SECONDS
        while not server.served:
            if not server.wait():
                raise PerfwrapError(
                    "The browser did not fetch the trace.", f"Open {VIEWER} and load {file.absolute()} there."
                )


class OneFile(HTTPServer):
    """Serves one file to the Perfetto page, on this machine only."""

    def __init__(self, file: Path, port: int) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.file = file
        # Every user of this machine can connect to the port; the path is known to the browser only.
        self.place = f"/{secrets.token_urlsafe(16)}/{file.name}"
        self.served = False
        self._has_request = True

    def wait(self) -> bool:
        """Answer one request; return False if none came in time."""
        self._has_request = True
        self.handle_request()
        return self._has_request

    def handle_timeout(self) -> None:
        """Note that no request came."""
        self._has_request = False


class Answer(BaseHTTPRequestHandler):
    """Answers with the file, or with an error."""

    server: OneFile
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - the name that the library looks for
        """Send the file to a client that knows its path."""
        own = f"127.0.0.1:{self.server.server_port}"
        # Another host name means a page of somebody else whose name resolves to this machine (DNS rebinding).
        knows = hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.place.encode())
        if not knows or self.headers.get("Host") != own:
            self.send_error(404)
            return
        content = self.server.file.read_bytes()
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Content-Type", "application/gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.server.served = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
