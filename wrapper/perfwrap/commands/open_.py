"""Open a run in a browser: its report, or its timeline."""

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

from perfwrap.commands import runs
from perfwrap.commands.output_options import Run
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say

REPORT = "report.html"
VIEWER = "https://ui.perfetto.dev"
PORT = 9001
"""The only port of this machine from which Perfetto's page may fetch a trace (its content security policy)."""
PATIENCE_SECONDS = 60
SILENCE_SECONDS = 2
"""A browser opens connections ahead on which it says nothing: only one is listened to at a time."""


def open_(
    run: Run = runs.LATEST,
    trace: Annotated[
        bool, typer.Option("--trace", help="The timeline in ui.perfetto.dev, which keeps it in the browser.")
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Only print which file it is.")] = False,
) -> None:
    """Open a run in a browser: its report, or with --trace (or where it has no report) its timeline.

    Perfetto's page fetches the trace from this machine, through a server that serves this one file, to this page,
    once; nothing is uploaded.
    """
    folder = runs.find(str(run))
    report = folder / REPORT
    chosen = RunFolder(folder).trace if trace or not report.is_file() else report
    if not chosen.is_file():
        raise PerfwrapError(
            f"{folder} has no {chosen.name}.", f"`perfwrap report {folder}` makes it from what was recorded."
        )
    if path:
        # The name of a file is its bytes, whatever the encoding of the output.
        sys.stdout.buffer.write(os.fsencode(chosen.absolute()) + b"\n")
    elif chosen == report:
        _browse(chosen.absolute().as_uri(), chosen)
    else:
        _serve(chosen)


def _browse(address: str, file: Path) -> None:
    """Show an address in the user's browser; PerfwrapError where there is none."""
    if not webbrowser.open(address):
        raise PerfwrapError(
            "No browser could be started here.",
            f"Copy {file.absolute()} to a machine with one and open it there.",
        )


def _serve(file: Path) -> None:
    """Have Perfetto's page fetch the file from here, and leave when it has."""
    try:
        server = OneFile(file, PORT)
    except OSError as error:
        raise PerfwrapError(
            f"Port {PORT} of this machine cannot be used: {error.strerror}.",
            f"Open {VIEWER} and give it {file.absolute()}.",
        ) from error
    with server:
        address = f"{VIEWER}/#!/?url=http://127.0.0.1:{server.server_port}{server.place}"
        say(f"Opening {address}")
        _browse(address, file)
        server.timeout = PATIENCE_SECONDS
        while not server.served:
            if not server.wait():
                raise PerfwrapError(
                    "The browser did not fetch the trace.", f"Open {VIEWER} and give it {file.absolute()}."
                )


class OneFile(HTTPServer):
    """Serves one file to Perfetto's page, on this machine only."""

    def __init__(self, file: Path, port: int) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.file = file
        # Every user of this machine can ask the port: only the browser is told where the file is.
        self.place = f"/{secrets.token_urlsafe(16)}/{file.name}"
        self.served = False
        self._came = True

    def wait(self) -> bool:
        """Answer one request; False when none came in time."""
        self._came = True
        self.handle_request()
        return self._came

    def handle_timeout(self) -> None:
        """Note that nobody came."""
        self._came = False


class Answer(BaseHTTPRequestHandler):
    """Answers with the file, or not at all."""

    server: OneFile
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - the name that the library looks for
        """Send the file to whoever knows where it is."""
        own = f"127.0.0.1:{self.server.server_port}"
        # Another host is a page of somebody's whose name was made to lead here (DNS rebinding).
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
        """Keep quiet."""
