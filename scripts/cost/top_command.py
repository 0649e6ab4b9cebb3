"""Measure the cost of `perfwrap top`: its share of one core per minute, for a run of millions of records.

    python scripts/cost/top_command.py [--minutes 10] [--records 5000000]

Writes a run folder like a recorder and a monitor, at a constant rate, while `perfwrap top` follows it on a
pseudo-terminal of 80x24. The share must stay below 5 % and must not grow.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import numpy as np
from perfwrap.journal_format import (
    DESCRIBE,
    FIELD_SEPARATOR,
    FORMAT,
    GRAD,
    HEADER,
    MAGIC,
    PIECE_BYTES,
    RECORD,
    SPANS,
    TEXT_RECORD,
    TRAINING,
)
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals.journal_file import SLOT

STEP = (
    "DATA",
    "FETCH",
    "GETITEM",
    "COLLATE",
    "TRANSFER",
    "ZERO_GRAD",
    "FORWARD",
    "BACKWARD",
    "OPTIMIZER",
    "SYNC",
)
TICKS = os.sysconf("SC_CLK_TCK")
SERIES = [
    (f"process/{os.getpid()}", "cpu_cores"),
    (f"process/{os.getpid()}", "rss_bytes"),
    ("host", "cpu_cores_busy"),
]
SERIES += [(f"cpu/{number}", "busy_share") for number in range(32)]


class Writer:
    """Appends records to a journal, like this process's recorder."""

    def __init__(self, folder: Path, name: str, role: str) -> None:
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        self.file = (folder / f"{name}-{os.getpid()}-{ticks}-{role == 'monitor':d}.pwj").open(
            "wb", buffering=0
        )
        self.file.write(HEADER.pack(MAGIC, FORMAT, os.getpid(), time.monotonic_ns(), time.time_ns()))
        self.file.write(bytes(7 * RECORD.size))
        self.texts = 0
        self.write("FACT", 0, 0, self.text(role), self.text("role"))

    def text(self, text: str) -> int:
        """Write a text and return its id."""
        self.texts += 1
        encoded = text.encode()
        for piece in range(-(-len(encoded) // PIECE_BYTES)):
            part = encoded[PIECE_BYTES * piece :][:PIECE_BYTES]
            self.file.write(TEXT_RECORD.pack(part, self.texts, piece, DESCRIBE["TEXT"]))
        return self.texts

    def write(self, kind: str, start: int, duration: int, value: int, name: int) -> None:
        """Write one describing record."""
        self.file.write(RECORD.pack(start, duration, value, name, 0, DESCRIBE[kind]))


def train(folder: Path, rate: float, until: float) -> None:
    """Write records at this rate until then, ten times a second as many as are due."""
    trainer, monitor = (Writer(folder, os.uname().nodename, role) for role in ("main", "monitor"))
    texts = [
        trainer.text(FIELD_SEPARATOR.join([name, "train.py", str(10 + line), "main"]))
        for line, name in enumerate(STEP)
    ]
    texts[0] = trainer.text(FIELD_SEPARATOR.join(["loader/1", "train.py", "9", "main"]))
    series = [monitor.text(FIELD_SEPARATOR.join(one)) for one in SERIES]
    done = time.monotonic_ns()
    length = int(1e9 * len(STEP) / rate)
    while time.monotonic() < until:
        steps = (time.monotonic_ns() - done) // length
        slots = np.zeros((steps, len(STEP)), SLOT)
        begin = (
            done + length * np.arange(steps)[:, None] + (length // len(STEP)) * np.arange(len(STEP))[None, :]
        )
        slots["start"], slots["duration"] = begin, int(0.8 * length / len(STEP))
        slots["name"], slots["thread"] = texts, 1
        slots["kind"] = [SPANS[name] for name in STEP]
        slots["value"][:, 0], slots["value"][:, 6] = 32, TRAINING | GRAD
        trainer.file.write(slots.tobytes())
        done += steps * length
        samples = np.zeros(len(series), SLOT)
        samples["start"], samples["name"], samples["kind"] = time.monotonic_ns(), series, DESCRIBE["SAMPLE"]
        samples["value"] = np.full(len(series), 0.5).view("<i8")
        monitor.file.write(samples.tobytes())
        time.sleep(0.1)


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    """Write, follow, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--records", type=int, default=5_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place))
        folder.journal.mkdir()
        folder.starts.mkdir()
        now = {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        host = {"name": os.uname().nodename}
        folder.write_manifest(
            {"command": ["python", "train.py"], "start": now, "end": None, "exit": None, "host": host}
        )
        until = time.monotonic() + 60 * options.minutes
        rate = options.records / (60 * options.minutes)
        writing = threading.Thread(target=train, args=(folder.journal, rate, until))
        writing.start()
        pid, terminal = pty.fork()
        if not pid:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "perfwrap", "top", place])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        follow(pid, terminal, until)
        writing.join()


def follow(pid: int, terminal: int, until: float) -> None:
    """Print the share of each minute; then end the view."""
    os.set_blocking(terminal, False)
    print("| minute | share of one core | memory |\n|---|---|---|")
    minute, before, begin = 0, processor_seconds(pid), time.monotonic()
    while time.monotonic() < until - 0.5:
        time.sleep(0.2)
        try:
            os.read(terminal, 1 << 20)
        except BlockingIOError:
            pass
        if time.monotonic() - begin >= 60:
            used, now = processor_seconds(pid), time.monotonic()
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            minute += 1
            print(f"| {minute} | {(used - before) / (now - begin):.2%} | {resident >> 20} MiB |", flush=True)
            before, begin = used, now
    os.write(terminal, b"q")
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
