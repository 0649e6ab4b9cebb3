"""Reads what the recorder wrote where a GPU's memory had run out: ``memory/<host>-<pid>-<number>.pickle``.

Each group of live blocks becomes a mark ``live_block`` with its bytes and the innermost line of its stack that is
neither torch's nor an installed package's, or the innermost one where all are. A file that cannot be read costs only
itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.sources.memory_snapshot import read_snapshot, users_line
from perfwrap.timeline.builder import TimelineBuilder

FOLDER = "memory"
NAME = re.compile(r"^(?P<host>.+)-(?P<pid>\d{1,10})-(?P<number>\d{1,18})\.pickle$", re.ASCII)
MOST_GROUPS = 50


def add_all(folder: RunFolder, builder: TimelineBuilder, shown: Callable[[str], str] = str) -> None:
    """Add the live blocks of all files, each file's at a moment of its own: their order is that of their numbers.

    ``shown`` returns what a host is called that a file names.
    """
    for path in sorted((folder.path / FOLDER).glob("*.pickle")):
        name = NAME.match(path.name)
        if name is None:
            continue
        try:
            snapshot = read_snapshot(path)
        except (PerfwrapError, *UNFORESEEN) as error:
            builder.warn(f"{path.name} of the folder {FOLDER} was left out: {error}")
            continue
        process = builder.latest_process(shown(name["host"]), int(name["pid"]))
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
