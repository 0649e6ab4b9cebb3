from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from perfwrap.exporters.export_model import Destination, Exported

pytest.importorskip("wandb", reason="needs wandb, which is too large for the tests' own extra")

from perfwrap.exporters import wandb

BLOCK, FILE_HEADER, HEADER = 32 * 1024, 7, struct.Struct("<IHB")
"""A .wandb file is a log as LevelDB writes it: pieces with checksum, length and kind, which never cross a block."""
FULL, FIRST, LAST = 1, 2, 4


def records(path: Path) -> list[Any]:
    """Return what an offline run's file holds."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place = path.read_bytes(), FILE_HEADER
    found, begun = [], b""
    while place + HEADER.size <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER.size:
            place += left
            continue
        _, size, kind = HEADER.unpack_from(content, place)
        piece = content[place + HEADER.size : place + HEADER.size + size]
        place += HEADER.size + size
        begun = piece if kind in (FULL, FIRST) else begun + piece
        if kind in (FULL, LAST):
            found.append(Record.FromString(begun))
    return found


def test_an_offline_folder_holds_the_run(
    taken: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)  # a key alone is no destination
    (tmp_path / "report.html").write_text("<p>")
    taken = replace(taken, page=tmp_path / "report.html")
    reported = wandb.export(taken, Destination(out=tmp_path, experiment="speed"))
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert reported == [f"Written: {folder}", f"To send it to a server: wandb sync {folder}"]
    found = records(next(folder.glob("*.wandb")))
    begun = next(record.run for record in found if record.WhichOneof("record_type") == "run")
    assert (begun.project, begun.display_name, list(begun.tags)) == ("speed", "tuned", ["bf16"])
    rows = [
        {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]
    times = [float(row["perfwrap/step_time_seconds"]) for row in rows if "perfwrap/step_time_seconds" in row]
    assert times == pytest.approx(list(taken.series[0].values))
    summary = {
        item.key or "/".join(item.nested_key): item.value_json
        for record in found
        if record.WhichOneof("record_type") == "summary"
        for item in record.summary.update
    }
    assert float(summary["perfwrap_summary/step_time_seconds/median"]) == pytest.approx(0.1)
    assert summary["perfwrap_report"] == '"files/report.html"'
    files = {"diagnosis.json", "report.md", "report.html"}
    assert {path.name for path in (folder / "files").iterdir()} >= files
