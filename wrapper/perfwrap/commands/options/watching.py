"""Check the options for stalls and for the metrics server."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import Options
from perfwrap.private_files import read_plain
from perfwrap.run_folder import here

MAX_TOKEN_BYTES = 1 << 20


def with_stalls(options: Options, after_s: float, kill: bool, grace_s: float) -> Options:
    """Return the options with those for stalls; PerfwrapError if stalls could not be detected."""
    if kill and (after_s <= 0 or not options.monitors):
        reason = "--no-monitors" if not options.monitors else "--stall-after 0"
        raise PerfwrapError(f"--kill-on-stall cannot detect stalls with {reason}.", f"Omit {reason}.")
    return replace(options, stall_after_s=after_s, kill_on_stall=kill, kill_grace_s=grace_s)


def with_metrics(options: Options, port: int, address: str, token_file: Path | None) -> Options:
    """Return the options with those for metrics; PerfwrapError if everybody could read them, or without monitors."""
    if not port:
        return options
    if not options.monitors:
        raise PerfwrapError(
            "--metrics-port and --no-monitors exclude each other: the monitors serve the metrics.",
            "Omit one.",
        )
    if token_file is None and not _is_loopback(address):
        raise PerfwrapError(
            f"Everybody who can reach {address} could read the metrics.",
            "Add --metrics-token-file FILE with a secret token in FILE, or listen on 127.0.0.1.",
        )
    token = "" if token_file is None else _readable(token_file)
    return replace(options, metrics_port=port, metrics_address=address, metrics_token_file=token)


def _is_loopback(address: str) -> bool:
    """Return whether an address is loopback; PerfwrapError if it is not an IPv4 address."""
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError as error:
        raise PerfwrapError(
            f"--metrics-address takes an IPv4 address, not {address!r}.",
            "For example: --metrics-address 0.0.0.0",
        ) from error


def _readable(file: Path) -> str:
    """Return the path of the token file; PerfwrapError if it contains no token."""
    try:
        token = read_plain(file, MAX_TOKEN_BYTES).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise PerfwrapError(f"Cannot read the token: {error}", "Give a file that you may read.") from error
    if not token:
        raise PerfwrapError(f"The token file {file} is empty.", "Write a long random word into it.")
    return str(here(file))
