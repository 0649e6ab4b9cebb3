from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from perfwrap.launch import nsys


def test_secrets_of_the_command_line_are_masked_wherever_nsys_keeps_it(tmp_path: Path) -> None:
    export = tmp_path / "nsys.sqlite"
    words = ("train.py", "--token", "hunter2", "--lr", "1", "--api-key=hunter2")
    with closing(sqlite3.connect(export)) as connection:
        connection.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        # Ten comes after two, whatever the order of the names.
        rows = [(f"PROCESS_0:ARGUMENT_{number + 8}", word) for number, word in enumerate(words)]
        connection.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", sorted(rows))
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.execute(
            "INSERT INTO StringIds VALUES (1, 'python --password=hunter2'), (2, 'gemm<float>')"
        )
        connection.commit()
    assert nsys.redact(export) is None
    assert b"hunter2" not in export.read_bytes()
    with closing(sqlite3.connect(export)) as connection:
        kept = dict(connection.execute("SELECT name, value FROM META_DATA_CAPTURE"))
        texts = [row[0] for row in connection.execute("SELECT value FROM StringIds ORDER BY id")]
    assert kept["PROCESS_0:ARGUMENT_10"] == "***"
    assert kept["PROCESS_0:ARGUMENT_9"] == "--token"
    assert texts == ["python --password=***", "gemm<float>"]
