"""What each kind of file is handed to: for the tests of hostile files, and for ``scripts/faults/fuzz.py``.

A target takes a file's content and an empty folder that it may use again, and raises nothing but what is a bug.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfwrap.analysis import run_names
from perfwrap.commands import compared_runs, run_report
from perfwrap.comparison.comparing import compare
from perfwrap.diagnosis import configuration
from perfwrap.errors import PerfwrapError
from perfwrap.live.live_run import LiveRun
from perfwrap.redaction import masked
from perfwrap.reports import ending_text
from perfwrap.reports import json as json_report
from perfwrap.reports.terminal import run_text
from perfwrap.reports.terminal.page import Page
from perfwrap.run_folder import RunFolder
from perfwrap.sources import SOURCES, files
from perfwrap.sources.gpu_memory.memory_snapshot import parse_snapshot
from perfwrap.sources.journals import run_journals

MOMENT = {"monotonic_ns": 1_000_000_000, "wall_ns": 1_700_000_000_000_000_000}
MANIFEST: dict[str, Any] = {
    "format": 1,
    "command": ["python"],
    "cwd": "/",
    "start": MOMENT,
    "clock": [MOMENT],
}
IMPORTED = tuple(name for name in SOURCES if name not in ("journal", "torch_memory"))


def _import(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = folder / "file"
        path.write_bytes(data)
        next(iter(files._recognising(path, data[: files.HEAD_BYTES])), None)
        files.read([path], {}, name)

    return read


def _run_folder(folder: Path, **manifest: Any) -> RunFolder:
    path = folder / "run"
    shutil.rmtree(path, ignore_errors=True)
    for name in ("journal", "starts", "tools/py-spy", "memory"):
        (path / name).mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(MANIFEST | manifest))
    return RunFolder(path)


def _journal(data: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    (run.journal / "host-77-1-0.pwj").write_bytes(data)
    with contextlib.suppress(PerfwrapError):
        run_journals.read(run)
    live = LiveRun(run)
    live.refresh()
    live.timeline()


def _in_run(place: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        run = _run_folder(folder)
        (run.path / place).write_bytes(data)
        with contextlib.suppress(PerfwrapError):
            run_journals.read(run)

    return read


def _manifest(data: bytes, folder: Path) -> None:
    run = _run_folder(folder)
    run.manifest.write_bytes(data)
    with contextlib.suppress(PerfwrapError):
        diagnosis = run_report.diagnosed(run.path)
        ending_text.sentence(diagnosis.run)
        json_report.text(diagnosis)
        page = Page(io.StringIO())
        run_text.draw(diagnosis, run.path, page)
        page.show()
    list(run_names.folders(folder))
    live = None
    with contextlib.suppress(PerfwrapError):
        live = LiveRun(run)
    if live is not None:
        live.refresh()
        live.timeline()


def _diagnosis(data: bytes, folder: Path) -> None:
    path = folder / "diagnosis.json"
    path.write_bytes(data)
    with contextlib.suppress(PerfwrapError):
        _, document = compared_runs.document(str(path))
        compare([("a", document)], [("b", document)])


def _memory(data: bytes, folder: Path) -> None:
    with contextlib.suppress(PerfwrapError):
        parse_snapshot(data, "file")


def _configuration(data: bytes, folder: Path) -> None:
    (folder / "perfwrap.toml").write_bytes(data)
    with contextlib.suppress(PerfwrapError):
        configuration.choose(folder)


def _text(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    assert masked(masked(text)) == masked(text)


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    **{name: _import(name) for name in IMPORTED},
    "journal": _journal,
    "starts": _in_run("starts/host.log"),
    "py-spy-log": _in_run("tools/py-spy/host.log"),
    "manifest": _manifest,
    "diagnosis": _diagnosis,
    "memory": _memory,
    "configuration": _configuration,
    "text": _text,
}
