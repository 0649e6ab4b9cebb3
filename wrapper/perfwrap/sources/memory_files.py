"""Reads what the recorder wrote where a GPU's memory had run out: ``memory/<host>-<pid>-<number>.pickle``.

Each group of live blocks becomes a mark ``live_block`` with its bytes and the innermost line of its stack that is
neither torch's nor an installed package's, or the innermost one where all are. A file that cannot be read costs only
itself.
"""

from __future__ import annotations

import re

from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.sources.memory_snapshot import users_line
from perfwrap.sources.snapshot_apart import read_apart
from perfwrap.timeline.builder import TimelineBuilder

FOLDER = "memory"
NAME = re.compile(r"^(?P<host>.+)-(?P<pid>\d+)-(?P<number>\d+)\.pickle$")
MOST_GROUPS = 50


def add_all(folder: RunFolder, builder: TimelineBuilder) -> None:
    """Add the live blocks of all files, each file's at a moment of its own: their order is that of their numbers."""
    for path in sorted((folder.path / FOLDER).glob("*.pickle")):
        name = NAME.match(path.name)
        if name is None:
            continue
        try:
            snapshot = read_apart(path)
        except (PerfwrapError, OSError) as error:
            builder.warn(f"{path.name} of the folder {FOLDER} was left out: {error}")
            continue
        process = builder.latest_process(name["host"], int(name["pid"]))
        for group in snapshot.groups[:MOST_GROUPS]:
            file, line, function = users_line(group.stack) or (None, None, None)
            builder.add_row(
                "marks",
                time=int(name["number"]),
                track=process,
                name="live_block",
                detail=str(group.blocks),
                file=file or None,
                line=line if file else None,
                function=function,
                value=float(group.size),
                source="recorder",
            )
