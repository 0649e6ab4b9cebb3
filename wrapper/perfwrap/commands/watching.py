"""What the user asks of the watching while a command runs: stalls, and metrics for others."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import Options
from perfwrap.private_files import read_plain
from perfwrap.run_folder import here

MOST_TOKEN_BYTES = 1 << 20


def with_stalls(options: Options, after_s: float, kill: bool, grace_s: float) -> Options:
    """Return the options with those about stalls; PerfwrapError where nobody could see what is to be ended."""
    if kill and (after_s <= 0 or not options.monitors):
        reason = "--no-monitors" if not options.monitors else "--stall-after 0"
        raise PerfwrapError(f"--kill-on-stall sees no stall with {reason}.", f"Leave {reason} out.")
    return replace(options, stall_after_s=after_s, kill_on_stall=kill, kill_grace_s=grace_s)


def with_metrics(options: Options, port: int, address: str, token_file: Path | None) -> Options:
    """Return the options with those about metrics; PerfwrapError where anybody could read them or nobody serves."""
    if not port:
        return options
    if not options.monitors:
        raise PerfwrapError(
            "--no-monitors leaves nobody who could serve metrics.", "Leave one of the two out."
        )
    if token_file is None and not _is_loopback(address):
        raise PerfwrapError(
            f"Whoever reaches {address} could read the metrics.",
            "Name a file that holds a token, with --metrics-token-file FILE, or listen on 127.0.0.1.",
        )
    token = "" if token_file is None else _readable(token_file)
    return replace(options, metrics_port=port, metrics_address=address, metrics_token_file=token)


def _is_loopback(address: str) -> bool:
    """Say whether only this machine reaches an address; PerfwrapError for what is none."""
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError as error:
        raise PerfwrapError(
            f"--metrics-address {address!r} is no IPv4 address.", "For example: --metrics-address 0.0.0.0"
        ) from error


def _readable(file: Path) -> str:
    """Return the path of a token's file; PerfwrapError when there is no token in it."""
    try:
        token = read_plain(file, MOST_TOKEN_BYTES).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise PerfwrapError(f"The token cannot be read: {error}", "Name a file that you may read.") from error
    if not token:
        raise PerfwrapError(f"The token's file {file} is empty.", "Write a long random word into it.")
    return str(here(file))
