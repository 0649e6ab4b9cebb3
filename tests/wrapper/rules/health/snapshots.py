"""Small memory snapshots in the format of torch's ``_dump_snapshot``, for the rules about them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.sources import files

MIB = 1 << 20


def frames(line: int) -> list[dict[str, Any]]:
    """Return the stack of a request at a line of train.py."""
    return [{"filename": "/home/me/train.py", "line": line, "name": f"step{line}"}]


def event(action: str, mib: float, address: int, line: int = 7) -> dict[str, Any]:
    """Return one event of the history."""
    size = round(mib * MIB)
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames(line)}


def diagnosed(path: Path, blocks: list[tuple[int, float, int]], history: list[dict[str, Any]]) -> Diagnosis:
    """Return the diagnosis of a snapshot with live blocks (address, MiB and line) and a history."""
    live = [
        {
            "address": address,
            "size": round(mib * MIB),
            "requested_size": round(mib * MIB),
            "state": "active_allocated",
            "frames": frames(line),
        }
        for address, mib, line in blocks
    ]
    size = sum(block["size"] for block in live)
    segment = {"device": 0, "address": 1, "total_size": size, "blocks": live}
    timed = [{**one, "time_us": 1_000 + number} for number, one in enumerate(history)]
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [timed]}))
    timeline, (found,) = files.read([path], {})
    assert (found.format, found.problem) == ("torch_memory", "")
    return diagnose(timeline)
